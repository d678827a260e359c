//! Every duration that the client lives by, in one place, so that tests and a lab can shorten them.

use std::time::Duration;

/// Time limits and intervals. The defaults are for an edge device; see each field for its reason.
#[derive(Debug, Clone)]
pub struct Timings {
    /// One call to the workload API, from connecting to the last byte of the answer.
    pub workload_call: Duration,
    /// Name resolution and TCP connect.
    pub tcp_connect: Duration,
    /// TLS handshake.
    pub tls_handshake: Duration,
    /// CONNECT to CONNACK. edgeHub may look an unknown identity up in the cloud first, which takes
    /// long; images 1.6.0 and 1.6.1 can also lose a CONNECT, so the wait must end.
    pub connack: Duration,
    /// SUBSCRIBE to SUBACK.
    pub suback: Duration,
    /// One twin GET or reported patch. A GET blocks for about 20 s while edgeHub is offline.
    pub twin_answer: Duration,
    /// Publish to PUBACK, before the link is given up.
    pub puback: Duration,
    /// Bytes are waiting and the peer takes none.
    pub write_stall: Duration,
    /// Keep-alive announced in CONNECT, in whole seconds; a ping goes out after half of it without
    /// traffic in one of the two directions.
    pub keep_alive: Duration,
    /// When an answer is outstanding and the hub has said nothing for this long, a ping asks whether
    /// it is there at all: after a cut link TCP itself can take a minute to notice.
    pub ping_when_waiting: Duration,
    /// PINGREQ to PINGRESP.
    pub pingresp: Duration,
    /// Pause between TLS handshake and CONNECT once a CONNECT got lost, as an inclusive range.
    pub connect_pause: (Duration, Duration),
    /// Back-off between connection attempts with full jitter: first and largest ceiling.
    pub backoff: (Duration, Duration),
    /// The same for attempts that failed at the workload API, which is local and answers fast.
    pub workload_backoff: (Duration, Duration),
    /// A link must have been up this long before the back-off starts from its first step again.
    pub stable: Duration,
    /// Life of a SAS token.
    pub token_ttl: Duration,
    /// Planned reconnect, as parts of a thousand of `token_ttl`, drawn from this range.
    pub renewal_permille: (u32, u32),
    /// How long a planned reconnect waits for outstanding PUBACKs and method answers.
    pub renewal_drain: Duration,
    /// A method call is answered with 504 by the client if the program has not answered by then.
    pub method_answer: Duration,
    /// Least time between two events that carry desired properties.
    pub desired_spacing: Duration,
    /// Least time between two twin GETs that a version gap asked for.
    pub gap_get_spacing: Duration,
    /// Periodic twin GET, drawn from this range: a missed change is found, at a bearable price.
    pub twin_refresh: (Duration, Duration),
    /// Least time between two reported patches.
    pub report_interval: Duration,
    /// The same if the caller said that the change is urgent.
    pub report_alarm_interval: Duration,
    /// Back-off of reported patches that the hub answered with 429, 5xx or not at all.
    pub report_backoff: (Duration, Duration),
    /// A reported patch that was accepted is looked for in a GET after this time at the earliest…
    pub report_verify_after: Duration,
    /// …and no sooner than this after the GET before (twin reads are billed).
    pub report_verify_spacing: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        Self {
            workload_call: s(10),
            tcp_connect: s(10),
            tls_handshake: s(15),
            connack: s(60),
            suback: s(30),
            twin_answer: s(60),
            puback: s(60),
            write_stall: s(30),
            keep_alive: s(60),
            ping_when_waiting: s(5),
            pingresp: s(15),
            connect_pause: (ms(50), ms(200)),
            backoff: (s(1), s(120)),
            workload_backoff: (s(1), s(30)),
            stable: s(60),
            token_ttl: s(3600),
            renewal_permille: (800, 900),
            renewal_drain: s(5),
            method_answer: ms(4_500),
            desired_spacing: s(1),
            gap_get_spacing: s(5),
            twin_refresh: (s(1_800), s(3_600)),
            report_interval: s(60),
            report_alarm_interval: s(5),
            report_backoff: (s(5), s(300)),
            report_verify_after: s(60),
            report_verify_spacing: s(900),
        }
    }
}
