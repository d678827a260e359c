//! One HTTP request to the API: who asks, whether they may, which fault is due, which verb it is.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request as HttpRequest, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::discovery;
use super::form::Form;
use super::knobs::{Failure, Request};
use super::object;
use super::patch::PatchKind;
use super::query::{Continue, Query};
use super::resource::{ACCESS_REVIEWS, EVENTS, EVENTS_V1, Resource};
use super::respond::{deleted_status, header, respond, respond_error, with_json};
use super::route::{ObjectsRoute, Route};
use super::shared::{ADMIN, Shared, USER};
use super::status::ApiError;
use super::store::Key;
use super::verbs::{DeleteOptions, Target};
use super::watch::{self, WatchRequest};

/// Largest request body, as the real server has it.
const BODY_LIMIT: usize = 3 << 20;

/// Answers one request and writes it to the request log.
pub(crate) async fn handle(shared: Arc<Shared>, request: HttpRequest<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = Call {
        user: user(&shared, &head.headers),
        query: Query::parse(head.uri.query().unwrap_or_default()),
        route: Route::parse(head.uri.path()),
        method: head.method.clone(),
        accept: header(&head.headers, header::ACCEPT),
        content_type: header(&head.headers, header::CONTENT_TYPE),
        shared: Arc::clone(&shared),
    };
    let body = match to_bytes(body, BODY_LIMIT).await {
        Ok(body) => body,
        Err(_) => return respond_error(&ApiError::bad_request("the body cannot be read")),
    };
    let body: Option<Value> = serde_json::from_slice(&body).ok();
    let response = call.answer(body.clone()).await;
    let response = response.unwrap_or_else(|error| respond_error(&error));
    let objects = match &call.route {
        Ok(Route::Objects(route)) => Some(route),
        _ => None,
    };
    shared.knobs().record(Request {
        at: Timestamp::now(),
        user: call.user.unwrap_or_default(),
        method: head.method.to_string(),
        path: head.uri.to_string(),
        verb: objects.map_or("", |route| call.verb(route)),
        resource: objects.map(|route| route.resource),
        namespace: objects
            .and_then(|route| route.namespace.clone())
            .unwrap_or_default(),
        name: objects
            .and_then(|route| route.name.clone())
            .unwrap_or_default(),
        user_agent: header(&head.headers, header::USER_AGENT),
        body,
        status: response.status().as_u16(),
    });
    response
}

struct Call {
    shared: Arc<Shared>,
    user: Option<&'static str>,
    method: Method,
    route: Result<Route, ApiError>,
    query: Query,
    accept: String,
    content_type: String,
}

impl Call {
    async fn answer(&self, body: Option<Value>) -> Result<Response<Body>, ApiError> {
        let route = match self.route.as_ref().map_err(Clone::clone)? {
            Route::Meta(path) if matches!(path.as_str(), "/healthz" | "/livez" | "/readyz") => {
                return Ok(Response::new(Body::from("ok")));
            }
            // Served to anybody who is known; the real server lets even the unknown ask /version.
            Route::Meta(path) if path == "/version" || self.user.is_some() => {
                let answer = discovery::answer(path, &self.shared.server_version)?;
                return Ok(respond(200, &answer));
            }
            Route::Meta(_) => return Err(ApiError::unauthorized()),
            Route::Objects(route) => route,
        };
        let user = self.user.ok_or_else(ApiError::unauthorized)?;
        if user == USER {
            self.misbehave(route, user).await?;
        }
        if route.resource == &ACCESS_REVIEWS {
            return self.review(user, body);
        }
        match route.subresource.as_deref() {
            None => {}
            Some("status") if route.resource.status => {}
            Some(_) => return Err(ApiError::no_route()),
        }
        self.dispatch(route, body)
    }

    /// Latency, forbidden verbs and ordered faults.
    async fn misbehave(&self, route: &ObjectsRoute, user: &str) -> Result<(), ApiError> {
        let verb = self.verb(route);
        let name = route.name.as_deref().unwrap_or_default();
        let (latency, allowed, failure) = {
            let mut knobs = self.shared.knobs();
            let allowed = knobs.allowed(verb, route.resource, route.namespace.as_deref());
            let failure = knobs.take_failure(verb, route.resource);
            (knobs.latency, allowed, failure)
        };
        tokio::time::sleep(latency).await;
        if !allowed {
            let namespace = route.namespace.as_deref();
            return Err(ApiError::forbidden(
                route.resource,
                verb,
                namespace,
                name,
                user,
            ));
        }
        if let Some(Failure::Hang(time)) = failure {
            tokio::time::sleep(time).await;
        }
        failure.map_or(Ok(()), |failure| Err(failure.error(route.resource, name)))
    }

    fn verb(&self, route: &ObjectsRoute) -> &'static str {
        match (&self.method, route.name.is_some()) {
            (&Method::GET, _) if self.query.flag("watch") => "watch",
            (&Method::GET, true) => "get",
            (&Method::GET, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => "",
        }
    }

    fn dispatch(
        &self,
        route: &ObjectsRoute,
        body: Option<Value>,
    ) -> Result<Response<Body>, ApiError> {
        let form = Form::new(route.resource, &self.accept);
        let target = Target {
            resource: stored(route.resource),
            namespace: route.namespace.as_deref().unwrap_or_default(),
            name: route.name.as_deref().unwrap_or_default(),
            status: route.subresource.is_some(),
            dry_run: self.query.dry_run(),
        };
        let need_body = || {
            // Typed creates of kubectl and client-go come as protobuf, which is not spoken here.
            if self.content_type.contains("protobuf") {
                return Err(ApiError::unsupported_media_type(&self.content_type));
            }
            let mut body = body
                .clone()
                .ok_or_else(|| ApiError::bad_request("the body is not JSON"))?;
            if route.resource == &EVENTS_V1 {
                super::events::to_core(&mut body);
            }
            Ok(body)
        };
        match self.verb(route) {
            "watch" => self.watch(route, form),
            "list" => self.list(route, form),
            "get" => {
                let store = self.shared.store();
                let object = store.get(target.resource, target.namespace, target.name);
                let object =
                    object.ok_or_else(|| ApiError::not_found(target.resource, target.name))?;
                Ok(respond(200, &form.object(object)))
            }
            "create" if target.name.is_empty() => {
                let new = need_body()?;
                let made = self.shared.write(|store| store.create(target, new))?;
                Ok(respond(201, &form.object(&made)))
            }
            "update" if !target.name.is_empty() => {
                let new = need_body()?;
                let made = self.shared.write(|store| store.update(target, new))?;
                Ok(respond(200, &form.object(&made)))
            }
            "patch" if !target.name.is_empty() => {
                let kind = PatchKind::of(&self.content_type)?;
                let patch = need_body()?;
                let made = self
                    .shared
                    .write(|store| store.patch(target, kind, &patch))?;
                Ok(respond(200, &form.object(&made)))
            }
            "delete" => {
                let options = delete_options(body.as_ref(), &self.query)?;
                let (object, gone) = self.shared.write(|store| store.delete(target, &options))?;
                let whole = matches!(route.resource.plural, "pods" | "services" | "namespaces");
                let answer = if gone && !whole {
                    deleted_status(route.resource, &object)
                } else {
                    form.object(&object)
                };
                Ok(respond(200, &answer))
            }
            "deletecollection" => self.delete_collection(route, form, body.as_ref()),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn watch(&self, route: &ObjectsRoute, form: Form) -> Result<Response<Body>, ApiError> {
        let mut selector = self.query.selector()?;
        if let Some(name) = &route.name {
            selector = selector.with_name(name);
        }
        let from = self.query.number("resourceVersion")?.filter(|v| *v != 0);
        let request = WatchRequest {
            resource: route.resource,
            namespace: route.namespace.clone(),
            selector,
            from,
            bookmarks: self.query.flag("allowWatchBookmarks"),
            initial_events: self.query.flag("sendInitialEvents"),
            timeout: self.query.timeout()?,
            form,
            ordinary: self.user == Some(USER),
        };
        let body = watch::body(Arc::clone(&self.shared), request);
        Ok(with_json(Response::new(body)))
    }

    fn list(&self, route: &ObjectsRoute, form: Form) -> Result<Response<Body>, ApiError> {
        let selector = self.query.selector()?;
        let namespace = route.namespace.as_deref();
        let limit = self.query.number("limit")?.unwrap_or(0);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let token = self.query.get("continue");
        let exact = self.query.get("resourceVersionMatch") == "Exact";
        let store = self.shared.store();
        let (revision, after) = if !token.is_empty() {
            let token = Continue::decode(token)?;
            (token.revision, Some(token.after))
        } else if exact {
            let wanted = self.query.number("resourceVersion")?;
            (wanted.unwrap_or_else(|| store.revision()), None)
        } else {
            (store.revision(), None)
        };
        let table = store.snapshot(route.resource, revision)?;
        drop(store);
        let key = |object: &Value| -> Key {
            let namespace = object::namespace(object).to_owned();
            (namespace, object::name(object).to_owned())
        };
        let mut items: Vec<_> = table
            .into_iter()
            .filter(|(at, _)| after.as_ref().is_none_or(|after| at > after))
            .filter(|((ns, _), _)| namespace.is_none_or(|wanted| wanted == ns))
            .map(|(_, object)| object)
            .filter(|object| selector.matches(object))
            .collect();
        let mut rest = None;
        if limit > 0 && items.len() > limit {
            let remaining = items.len() - limit;
            items.truncate(limit);
            rest = items.last().map(|last| {
                let token = Continue {
                    revision,
                    after: key(last),
                };
                (token.encode(), remaining)
            });
        }
        let list = form.list(items.iter().map(AsRef::as_ref), revision, rest);
        Ok(respond(200, &list))
    }

    fn delete_collection(
        &self,
        route: &ObjectsRoute,
        form: Form,
        body: Option<&Value>,
    ) -> Result<Response<Body>, ApiError> {
        let selector = self.query.selector()?;
        let options = delete_options(body, &self.query)?;
        let namespace = route.namespace.as_deref();
        let (deleted, revision) = self.shared.write(|store| {
            let matching: Vec<_> = store
                .list(route.resource, namespace)
                .filter(|object| selector.matches(object))
                .cloned()
                .collect();
            for object in &matching {
                let target = Target {
                    resource: stored(route.resource),
                    namespace: object::namespace(object),
                    name: object::name(object),
                    status: false,
                    dry_run: self.query.dry_run(),
                };
                store.delete(target, &options)?;
            }
            Ok::<_, ApiError>((matching, store.revision()))
        })?;
        let list = form.list(deleted.iter().map(AsRef::as_ref), revision, None);
        Ok(respond(200, &list))
    }

    /// SelfSubjectAccessReview: answered from the rules that the knobs forbid by.
    fn review(&self, user: &str, body: Option<Value>) -> Result<Response<Body>, ApiError> {
        if self.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let mut review = body.ok_or_else(|| ApiError::bad_request("the body is not JSON"))?;
        let asked = review["spec"]["resourceAttributes"].clone();
        let text = |key: &str| asked[key].as_str().unwrap_or_default();
        let resource = super::resource::ALL
            .iter()
            .find(|r| r.group == text("group") && r.plural == text("resource"));
        let namespace = Some(text("namespace")).filter(|ns| !ns.is_empty());
        let allowed = user == ADMIN
            || resource.is_some_and(|resource| {
                let knobs = self.shared.knobs();
                knobs.allowed(text("verb"), resource, namespace)
            });
        review["status"] = json!({"allowed": allowed});
        if !allowed {
            review["status"]["reason"] = json!("forbidden by a rule of the lab");
        }
        Ok(respond(201, &review))
    }
}

/// Both groups of events share the objects of the core group.
fn stored(resource: &'static Resource) -> &'static Resource {
    if resource == &EVENTS_V1 {
        &EVENTS
    } else {
        resource
    }
}

fn delete_options(body: Option<&Value>, query: &Query) -> Result<DeleteOptions, ApiError> {
    let none = Value::Null;
    let body = body.unwrap_or(&none);
    let text = |key: &str| body["preconditions"][key].as_str().map(str::to_owned);
    let in_query = query.number("gracePeriodSeconds")?;
    Ok(DeleteOptions {
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        grace_seconds: body["gracePeriodSeconds"]
            .as_i64()
            .or_else(|| in_query.and_then(|seconds| i64::try_from(seconds).ok())),
    })
}

fn user(shared: &Shared, headers: &HeaderMap) -> Option<&'static str> {
    let Some(token) = headers.get(header::AUTHORIZATION) else {
        return shared.anonymous_admin.then_some(ADMIN);
    };
    let token = token.to_str().ok()?;
    let token = token.strip_prefix("Bearer ")?;
    if token == shared.admin_token {
        Some(ADMIN)
    } else {
        (token == shared.token).then_some(USER)
    }
}
