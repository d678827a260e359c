//! What tests make go wrong, and the request log.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::super::{Failure, Fault, Forbid, resource};
use super::{cluster, code, service};

#[tokio::test]
async fn knobs_fail_forbid_and_record() {
    let (cluster, client) = cluster().await;
    let services: Api<Service> = Api::namespaced(client.clone(), "line1");
    services
        .create(&PostParams::default(), &service("a"))
        .await
        .unwrap();
    cluster.fail_next(Fault {
        verb: "patch",
        resource: Some(&resource::SERVICES),
        times: 1,
        failure: Failure::Conflict,
    });
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"x": "1"}}}));
    let error = services
        .patch("a", &PatchParams::default(), &touch)
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));
    services
        .patch("a", &PatchParams::default(), &touch)
        .await
        .unwrap();

    cluster.forbid(Forbid {
        verb: "delete",
        resource: Some(&resource::SERVICES),
        namespace: Some("line1".into()),
    });
    let error = services
        .delete("a", &DeleteParams::default())
        .await
        .unwrap_err();
    assert_eq!(code(&error), (403, "Forbidden".to_owned()));
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    for (verb, allowed) in [("delete", false), ("patch", true)] {
        let review = serde_json::from_value(json!({"spec": {"resourceAttributes": {
            "verb": verb, "group": "", "resource": "services", "namespace": "line1"}}}))
        .unwrap();
        let review = reviews
            .create(&PostParams::default(), &review)
            .await
            .unwrap();
        assert_eq!(review.status.unwrap().allowed, allowed, "{verb}");
    }
    let admin = super::client(&cluster.admin_kubeconfig_yaml()).await;
    let as_admin: Api<Service> = Api::namespaced(admin, "line1");
    as_admin
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();

    let writes: Vec<_> = cluster
        .writes()
        .iter()
        .map(|w| (w.verb, w.name.clone(), w.status))
        .collect();
    assert_eq!(
        writes,
        [
            ("create", String::new(), 201),
            ("patch", "a".into(), 409),
            ("patch", "a".into(), 200),
            ("delete", "a".into(), 403),
        ]
    );
    let stranger = cluster
        .kubeconfig_yaml()
        .replace(cluster.token(), "no-such-token");
    let stranger: Api<Service> = Api::namespaced(super::client(&stranger).await, "line1");
    let error = stranger.get("a").await.unwrap_err();
    assert_eq!(code(&error), (401, "Unauthorized".to_owned()));
}
