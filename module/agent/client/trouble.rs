//! Turns errors of the client into one line that a person can act on: the cause at the bottom of
//! the chain, and what to do about the usual ones.

use std::error::Error;

/// The whole chain of causes on one line, with advice where the cause is a usual one.
pub fn explain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("{} ({})", status.message, status.code);
    }
    let mut parts: Vec<String> = Vec::new();
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        // Wrappers repeat what they wrap.
        parts.retain(|p| !p.contains(&text));
        parts.push(text);
        next = cause.source();
    }
    let text = parts.join(": ");
    match advice(&text) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

fn advice(text: &str) -> Option<&'static str> {
    const USUAL: [(&str, &str); 7] = [
        (
            "Connection refused",
            "is the API server running, and is it reached at this address from inside the module? \
             (127.0.0.1 is the container itself: set cluster.server)",
        ),
        (
            "certificate not valid for name",
            "the certificate has another name: set cluster.tls_server_name",
        ),
        (
            "UnknownIssuer",
            "the certificate is from another authority: take a fresh kubeconfig",
        ),
        (
            "certificate expired",
            "renew the certificate, or set the clock right",
        ),
        ("certificate not valid yet", "set the clock right"),
        (
            "failed to lookup address",
            "the name of the API server is not known here",
        ),
        ("dns error", "the name of the API server is not known here"),
    ];
    USUAL
        .iter()
        .find(|(mark, _)| text.contains(mark))
        .map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_cause_and_the_advice_are_told() {
        let refused = std::io::Error::other("tcp connect error: Connection refused (os error 111)");
        let text = explain(&kube::Error::Service(Box::new(refused)));
        assert!(text.contains("Connection refused"), "{text}");
        assert!(text.contains("cluster.server"), "{text}");
        assert_eq!(text.matches("os error 111").count(), 1, "told once: {text}");
    }

    #[test]
    fn an_answer_of_the_api_is_told_in_its_own_words() {
        let status = kube::core::Status::failure("too many", "TooManyRequests").with_code(429);
        assert_eq!(explain(&kube::Error::Api(status.boxed())), "too many (429)");
    }
}
