//! The crate azure_iot_sdk as a module of the emulated device, as far as it can be made to act as one: the gateway in
//! the place of the hub, `device/module` in the place of a device id, tokens signed by the workload API, and OpenSSL's
//! SSL_CERT_FILE for the trust bundle (set by who starts this).
//!
//! Reads one JSON command a line from standard input and answers each with one JSON line on standard output; what the
//! crate hands over by itself comes as lines with "event". Never decides what is right.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use azure_iot_sdk::{DirectMethodResponse, IoTHubClient, Message, MessageType, TokenSource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

fn say(line: Value) {
    println!("{line}");
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set"))
}

/// Signs by the workload API. The crate's trait is synchronous, so this blocks.
#[derive(Clone)]
struct Workload {
    socket: String,
    hub: String,
    device: String,
    module: String,
}

impl Workload {
    fn from_env() -> Result<Self, String> {
        let uri = variable("IOTEDGE_WORKLOADURI")?;
        let socket = uri
            .strip_prefix("unix://")
            .ok_or("only unix sockets are known here")?;
        Ok(Self {
            socket: socket.to_owned(),
            hub: variable("IOTEDGE_IOTHUBHOSTNAME")?,
            device: variable("IOTEDGE_DEVICEID")?,
            module: variable("IOTEDGE_MODULEID")?,
        })
    }

    fn sign(&self, text: &str) -> Result<String, Box<dyn Error>> {
        let body = json!({"keyId": "primary", "algo": "HMACSHA256", "data": BASE64.encode(text)})
            .to_string();
        let path = format!(
            "/modules/{}/genid/0/sign?api-version=2019-01-30",
            self.module
        );
        let mut stream = UnixStream::connect(&self.socket)?;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: workload\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let answer: Value = serde_json::from_str(body)?;
        Ok(answer["digest"].as_str().ok_or("no digest")?.to_owned())
    }
}

impl TokenSource for Workload {
    fn get(&self, expiry: &DateTime<Utc>) -> String {
        let (
            Self {
                hub,
                device,
                module,
                ..
            },
            expiry,
        ) = (self, expiry.timestamp());
        let sr = format!("{hub}%2Fdevices%2F{device}%2Fmodules%2F{module}");
        match self.sign(&format!("{sr}\n{expiry}")) {
            Ok(digest) => {
                let sig = digest
                    .replace('+', "%2B")
                    .replace('/', "%2F")
                    .replace('=', "%3D");
                format!("SharedAccessSignature sr={sr}&sig={sig}&se={expiry}")
            }
            Err(error) => {
                eprintln!("cannot sign: {error}");
                String::new()
            }
        }
    }
}

/// What the crate hands over.
async fn receive(mut client: IoTHubClient) {
    let mut incoming = client.get_receiver().await;
    while let Some(message) = incoming.recv().await {
        match message {
            MessageType::DesiredPropertyUpdate(message) => {
                let patch: Value = serde_json::from_slice(&message.body).unwrap_or_default();
                say(json!({"event": "desired", "patch": patch}));
            }
            MessageType::DirectMethod(call) => {
                let payload: Value = serde_json::from_slice(&call.message.body).unwrap_or_default();
                say(json!({"event": "method", "name": call.method_name, "payload": payload}));
                let status = if call.method_name == "echo" { 200 } else { 404 };
                let response =
                    DirectMethodResponse::new(call.request_id, status, Some(payload.to_string()));
                if let Err(error) = client.respond_to_direct_method(response).await {
                    say(json!({"event": "error", "error": error.to_string()}));
                }
            }
        }
    }
}

async fn obey(client: &mut Option<IoTHubClient>, command: &Value) -> Result<(), Box<dyn Error>> {
    match (command["do"].as_str().unwrap_or(""), client.as_mut()) {
        ("connect", _) => {
            let workload = Workload::from_env()?;
            let gateway = variable("IOTEDGE_GATEWAYHOSTNAME")?;
            let id = format!("{}/{}", workload.device, workload.module);
            let new = IoTHubClient::new(&gateway, id, workload).await?;
            tokio::spawn(receive(new.clone()));
            *client = Some(new);
            Ok(())
        }
        ("report", Some(client)) => {
            client
                .send_property_update("1", &command["patch"].to_string())
                .await
        }
        // There is no output name to set, and no way to learn of a PUBACK.
        ("send", Some(client)) => {
            let mut message = Message::builder()
                .set_body(command["body"].to_string().into_bytes())
                .set_message_id(command["id"].as_str().unwrap_or("").to_owned())
                .set_content_type("application/json".to_owned())
                .set_content_encoding("utf-8".to_owned());
            for (key, value) in command["properties"].as_object().into_iter().flatten() {
                message = message
                    .add_message_property(key.clone(), value.as_str().unwrap_or("").to_owned());
            }
            client.send_message(message.build()).await
        }
        ("quit", _) => Ok(()),
        (other, _) => Err(format!("the crate cannot do {other}").into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut client = None;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let mut done = json!({"done": command["do"]});
        if let Err(error) = obey(&mut client, &command).await {
            done["error"] = error.to_string().into();
        }
        say(done);
        if command["do"] == "quit" {
            break;
        }
    }
    Ok(())
}
