//! Both ends of the control socket against each other.

use slice_core::event::HealOutcome;
use slice_core::judge::RemedyAction;
use slice_core::model::ServiceKey;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

struct Module {
    dir: TempDir,
    stop: CancellationToken,
    server: JoinHandle<()>,
    calls: mpsc::Receiver<ControlCall>,
}

async fn module(queue: usize) -> Module {
    let dir = tempfile::tempdir().unwrap();
    let server = ControlServer::bind(dir.path()).await.unwrap();
    let (sender, calls) = mpsc::channel(queue);
    let stop = CancellationToken::new();
    let health = Health::new(Duration::from_secs(60), []);
    let server = tokio::spawn(server.run(sender, health, stop.clone()));
    Module {
        dir,
        stop,
        server,
        calls,
    }
}

async fn client(module: &Module) -> ControlClient {
    ControlClient::connect(module.dir.path())
        .await
        .unwrap()
        .expect("a module runs")
}

fn heal() -> ControlRequest {
    ControlRequest::Heal {
        service: ServiceKey::new("line1", "model"),
        action: None,
        dry_run: false,
    }
}

#[tokio::test]
async fn a_request_gets_its_events_and_its_reply() {
    let mut module = module(4).await;
    let mode = std::fs::metadata(module.dir.path().join(SOCKET))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = client(&module).await;
    let answered = tokio::spawn(async move {
        let call = module.calls.recv().await.unwrap();
        assert_eq!(call.request, heal());
        assert!(call.responder.is_waited_for());
        assert!(call.responder.event("refreshed line1/model"));
        let reply = ControlReply::Ended {
            action: RemedyAction::RefreshService,
            outcome: HealOutcome::Healed,
            seconds: 3.5,
            message: "healed".into(),
        };
        call.responder.reply(reply).await;
        module
    });
    let mut events = Vec::new();
    let reply = client
        .ask(&heal(), DEADLINE, |event| events.push(event.message))
        .await
        .unwrap();
    assert!(
        matches!(
            reply,
            ControlReply::Ended {
                outcome: HealOutcome::Healed,
                ..
            }
        ),
        "{reply:?}"
    );
    assert_eq!(events, ["refreshed line1/model"]);
    let module = answered.await.unwrap();
    module.stop.cancel();
    tokio::time::timeout(DEADLINE, module.server)
        .await
        .unwrap()
        .unwrap();
    assert!(
        !module.dir.path().join(SOCKET).exists(),
        "the socket goes with the module"
    );
    assert!(
        ControlClient::connect(module.dir.path())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn what_is_not_understood_is_answered() {
    let module = module(4).await;
    let mut stream = UnixStream::connect(module.dir.path().join(SOCKET))
        .await
        .unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"{\"do\":\"explode\"}\n")
        .await
        .unwrap();
    let mut lines = Framed::new(stream, LinesCodec::new());
    let line = tokio::time::timeout(DEADLINE, lines.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        line.contains("\"reply\":\"error\"") && line.contains("explode"),
        "{line}"
    );
}

#[tokio::test]
async fn a_dropped_request_and_a_full_queue_are_answered() {
    let mut module = module(1).await;
    let first = client(&module).await;
    let waiting = tokio::spawn(async move { first.ask(&heal(), DEADLINE, |_| {}).await });
    // The first request sits in the queue; wait for it there without taking it out.
    tokio::time::timeout(DEADLINE, async {
        while module.calls.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let reply = client(&module)
        .await
        .ask(&ControlRequest::Ping, DEADLINE, |_| {})
        .await
        .unwrap();
    assert_eq!(reply, ControlReply::Busy);
    drop(module.calls.recv().await.unwrap());
    let reply = waiting.await.unwrap().unwrap();
    assert!(matches!(reply, ControlReply::Error { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let mut module = module(4).await;
    let client = client(&module).await;
    let asking = tokio::spawn(async move { client.ask(&heal(), DEADLINE, |_| {}).await });
    let call = module.calls.recv().await.unwrap();
    asking.abort();
    tokio::time::timeout(DEADLINE, call.responder.0.closed())
        .await
        .unwrap();
    assert!(!call.responder.is_waited_for());
    assert!(!call.responder.event("too late"));
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SOCKET);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(
        path.exists(),
        "std leaves the socket behind, as a killed module does"
    );
    assert!(ControlClient::connect(dir.path()).await.unwrap().is_none());
    let _server = ControlServer::bind(dir.path()).await.unwrap();
    let error = ControlServer::bind(dir.path()).await.unwrap_err();
    assert!(matches!(error, ControlError::InUse(_)), "{error}");
}

#[tokio::test]
async fn a_silent_module_costs_no_more_than_the_deadline() {
    let module = module(4).await;
    let asked = client(&module)
        .await
        .ask(&heal(), Duration::from_millis(50), |_| {})
        .await;
    assert!(matches!(asked, Err(ControlError::Slow(_))), "{asked:?}");
}
