//! One HTTP/1.1 exchange over a connection of its own. No retries, no deadline: the caller has both.

use std::future::Future;
use std::pin::pin;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::WorkloadUri;

/// Where an exchange failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// No connection came to be.
    Connect(std::io::Error),
    /// It did, and then something went wrong.
    Exchange(String),
}

/// Sends one request and reads the whole answer, at most `body_limit` bytes of it.
pub(super) async fn exchange(
    uri: &WorkloadUri,
    method: hyper::Method,
    target: &str,
    body: Vec<u8>,
    body_limit: usize,
) -> Result<(u16, Vec<u8>), Failed> {
    let host = match uri {
        WorkloadUri::Unix(_) => "localhost".to_owned(),
        WorkloadUri::Http { .. } => uri.to_string().trim_start_matches("http://").to_owned(),
    };
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(target)
        .header(hyper::header::HOST, host)
        .header(hyper::header::CONNECTION, "close");
    if !body.is_empty() {
        request = request.header(hyper::header::CONTENT_TYPE, "application/json");
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| Failed::Exchange(e.to_string()))?;
    match uri {
        WorkloadUri::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(Failed::Connect)?;
            talk(stream, request, body_limit).await
        }
        WorkloadUri::Http { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port))
                .await
                .map_err(Failed::Connect)?;
            talk(stream, request, body_limit).await
        }
    }
}

async fn talk<S>(
    stream: S,
    request: hyper::Request<Full<Bytes>>,
    body_limit: usize,
) -> Result<(u16, Vec<u8>), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), body_limit)
            .collect()
            .await
            .map_err(|e| Failed::Exchange(e.to_string()))?;
        Ok((status, body.to_bytes().to_vec()))
    };
    drive(connection, exchange).await
}

/// Runs `exchange` while the connection is polled beside it, without a task that could outlive us.
async fn drive<T>(
    connection: impl Future<Output = hyper::Result<()>>,
    exchange: impl Future<Output = T>,
) -> T {
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange);
    let mut ended = false;
    loop {
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            // Its error, if any, reaches the exchange as well, which then ends with it.
            _ = &mut connection, if !ended => ended = true,
        }
    }
}

fn failed(error: hyper::Error) -> Failed {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    Failed::Exchange(text)
}
