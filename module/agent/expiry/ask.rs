//! One HTTP GET on a connection that is already there: for looking at the workload socket, and for
//! health checks. No redirects, no proxy, a deadline, a size limit.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// The largest answer that is read, in bytes.
const LARGEST: usize = 1024 * 1024;

/// Asks and returns status and body.
///
/// # Errors
/// No proper answer within the deadline.
pub async fn get<S>(stream: S, host: &str, path: &str, deadline: Duration) -> Result<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(path)
            .header(http::header::HOST, host)
            .body(Empty::<Bytes>::new())?;
        let answer = async move {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), LARGEST)
                .collect()
                .await
                .map_err(anyhow::Error::from_boxed)?;
            Ok((
                status,
                String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            ))
        };
        // The connection has to be driven beside the request, and may end before the answer is read.
        let (answer, _) = futures::join!(answer, connection);
        answer
    };
    tokio::time::timeout(deadline, exchange)
        .await
        .with_context(|| format!("no answer within {} s", deadline.as_secs()))?
}
