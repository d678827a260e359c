//! Paths of the API: which resource, namespace, object and subresource a request is about.

use percent_encoding::percent_decode_str;

use super::resource::Resource;
use super::status::ApiError;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/api`, `/apis`, `/version` and the like; the path is kept.
    Meta(String),
    /// Objects.
    Objects(ObjectsRoute),
}

/// A collection, an object or a subresource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ObjectsRoute {
    pub(crate) resource: &'static Resource,
    /// None: of all namespaces, or not namespaced.
    pub(crate) namespace: Option<String>,
    /// None: the collection.
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    pub(crate) fn parse(path: &str) -> Result<Self, ApiError> {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(Self::Meta(path.trim_end_matches('/').to_owned())),
        };
        let find =
            |plural: &str| Resource::find(group, version, plural).ok_or_else(ApiError::no_route);
        let (namespace, resource, rest) = match rest {
            // `namespaces/x/status` is the object's own subresource, `namespaces/x/pods` is not.
            ["namespaces", ns, plural, rest @ ..] if !matches!(*plural, "status" | "finalize") => {
                (Some((*ns).to_owned()), find(plural)?, rest)
            }
            [plural, rest @ ..] => (None, find(plural)?, rest),
            [] => return Err(ApiError::no_route()),
        };
        let named = namespace.is_some() || !resource.namespaced;
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] if named => (Some((*name).to_owned()), None),
            [name, sub] if named => (Some((*name).to_owned()), Some((*sub).to_owned())),
            _ => return Err(ApiError::no_route()),
        };
        if namespace.is_some() && !resource.namespaced {
            return Err(ApiError::no_route());
        }
        Ok(Self::Objects(ObjectsRoute {
            resource,
            namespace,
            name,
            subresource,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> (&'static str, Option<String>, Option<String>, Option<String>) {
        match Route::parse(path).unwrap() {
            Route::Objects(r) => (r.resource.qualified, r.namespace, r.name, r.subresource),
            Route::Meta(path) => panic!("{path} is no object path"),
        }
    }

    #[test]
    fn object_paths() {
        let own = |s: &str| Some(s.to_owned());
        assert_eq!(parsed("/api/v1/pods"), ("pods", None, None, None));
        assert_eq!(
            parsed("/api/v1/namespaces/x/pods/a/status"),
            ("pods", own("x"), own("a"), own("status"))
        );
        assert_eq!(
            parsed("/api/v1/namespaces/x"),
            ("namespaces", None, own("x"), None)
        );
        assert_eq!(
            parsed("/api/v1/namespaces/x/status"),
            ("namespaces", None, own("x"), own("status"))
        );
        assert_eq!(
            parsed("/apis/discovery.k8s.io/v1/namespaces/x/endpointslices/a%2Db"),
            (
                "endpointslices.discovery.k8s.io",
                own("x"),
                own("a-b"),
                None
            )
        );
        for wrong in [
            "/api/v1/nothing",
            "/apis/apps/v2/deployments",
            "/api/v1/pods/a",
            "/api/v1/namespaces/x/nodes",
        ] {
            assert_eq!(Route::parse(wrong).unwrap_err().code, 404, "{wrong}");
        }
        assert_eq!(
            Route::parse("/apis/apps/v1").unwrap(),
            Route::Meta("/apis/apps/v1".into())
        );
    }
}
