//! What kubectl prints is read in every form, and what is broken is named.

use super::*;

const SERVICE: &str = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"a"},
  "spec":{"selector":{"app":"web"},"novel":{"field":true}}}"#;
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"a"}}"#;

fn read(text: &str) -> Result<Dump, LoadError> {
    let mut found = Found::default();
    load_text(&Source::new("dump"), text, &mut found)?;
    finish(found, Dump::default())
}

fn counts(text: &str) -> (usize, usize) {
    let counts = read(text).unwrap().world.counts();
    (counts.services, counts.pods)
}

#[test]
fn every_form_that_kubectl_prints_is_read() {
    assert_eq!(counts(SERVICE), (1, 0));
    assert_eq!(counts(&format!("{SERVICE}\n{POD}")), (1, 1));
    assert_eq!(counts(&format!("[{SERVICE},{POD}]")), (1, 1));
    let list = |kind: &str, items: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"{kind}","items":[{items}]}}"#)
    };
    assert_eq!(counts(&list("List", &format!("{SERVICE},{POD}"))), (1, 1));
    assert_eq!(
        counts(&list("PodList", r#"{"metadata":{"name":"p"}}"#)),
        (0, 1)
    );
    let yaml = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: a}\n\
                --- # next\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  \
                metadata:\n    name: web-1\n    namespace: a\n---\n# nothing\n";
    assert_eq!(counts(yaml), (1, 1));
}

#[test]
fn names_that_look_like_booleans_are_names() {
    let yaml = "apiVersion: v1\nkind: Service\nmetadata: {name: y, namespace: no}\n";
    assert_eq!(counts(yaml), (1, 0));
}

#[test]
fn other_kinds_are_tolerated_also_those_that_share_a_name() {
    let text = r#"{"apiVersion":"serving.knative.dev/v1","kind":"Service","metadata":{"name":"web"}}
      {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"kind":"Pod"}}"#;
    assert_eq!(counts(text), (0, 0));
}

#[test]
fn a_later_object_of_the_same_name_wins() {
    assert_eq!(counts(&format!("{POD}{POD}")), (0, 1));
}

#[test]
fn a_broken_object_is_named_with_file_and_document() {
    let broken = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-2","namespace":"a"},
      "status":{"podIPs":"10.1.0.5"}}"#;
    let error = read(&format!("{POD}\n{broken}")).unwrap_err().to_string();
    assert!(
        error.starts_with("dump, document 2: Pod a/web-2 is broken: "),
        "{error}"
    );
    let error = read("apiVersion: v1\nkind: Pod\n").unwrap_err().to_string();
    assert!(error.contains("Pod without a name"), "{error}");
    let error = read("apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("document 1: Pod 7 is broken"), "{error}");
    let error = read("a: [\n").unwrap_err().to_string();
    assert!(
        error.starts_with("dump, document 1: not JSON or YAML"),
        "{error}"
    );
    let error = read("{\"a\":").unwrap_err().to_string();
    assert!(
        error.starts_with("dump, document 1: not JSON or YAML"),
        "{error}"
    );
    assert!(matches!(read("# nothing\n"), Err(LoadError::Empty { .. })));
}

#[test]
fn what_is_not_there_is_not_seen_and_said() {
    let dump = read(SERVICE).unwrap();
    assert!(!dump.world.seen(Kind::Pod) && dump.world.seen(Kind::Service));
    assert!(
        dump.notes
            .iter()
            .any(|n| n.starts_with("no Pod in the input")),
        "{:?}",
        dump.notes
    );
    let empty = r#"{"apiVersion":"v1","kind":"PodList","items":[]}"#;
    assert!(read(empty).unwrap().world.seen(Kind::Pod));
}

#[test]
fn a_dump_with_the_apis_own_service_but_no_slice_was_not_dumped_whole() {
    let own = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"kubernetes","namespace":"default"}}"#;
    assert!(read(SERVICE).unwrap().world.seen(Kind::EndpointSlice));
    assert!(
        !read(&format!("{SERVICE}{own}"))
            .unwrap()
            .world
            .seen(Kind::EndpointSlice)
    );
}

#[test]
fn only_the_controllers_lease_counts() {
    let lease = |name: &str| {
        format!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
              "metadata":{{"name":"{name}","namespace":"kube-system"}},
              "spec":{{"renewTime":"2026-11-30T10:00:00.000000Z","leaseDurationSeconds":15}}}}"#
        )
    };
    assert!(
        read(&lease("kube-scheduler"))
            .unwrap()
            .controller_lease
            .is_none()
    );
    assert!(
        read(&lease("kube-controller-manager"))
            .unwrap()
            .controller_lease
            .is_some()
    );
}

#[test]
fn lists_within_lists_end() {
    for (open, close) in [
        ("[", "]"),
        (r#"{"apiVersion":"v1","kind":"List","items":["#, "]}"),
    ] {
        let deep = 50_000;
        let text = open.repeat(deep) + &close.repeat(deep);
        let error = read(&text).unwrap_err();
        assert!(error.to_string().contains("lists within lists"), "{error}");
    }
}
