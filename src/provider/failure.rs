//! What a provider's refusal means: by status, by error event, or by how the connection ended.
//!
//! Deliberately absent: what is done about it. Waits are told as they were asked for; whoever waits caps them.

use serde_json::Value;

use super::ProviderError;
use crate::model::time::Timestamp;
use crate::text::one_line;

/// No wait that a server asks for is taken to be longer: a year is a wrong clock or a wrong unit, and must not overflow.
const LONGEST_S: f64 = 31.0 * 24.0 * 3600.0;

/// Columns of a message that a person reads.
const DETAIL: usize = 300;

/// Part of the message when a conversation does not fit, as providers word it.
const TOO_LONG: [&str; 7] = [
    "context_length_exceeded",
    "context length",
    "context window",
    "context limit",
    "prompt is too long",
    "input token count",
    "request_too_large",
];

/// A response with a status that is no success.
pub(super) fn of_response(
    status: u16,
    header: impl Fn(&str) -> Option<String>,
    body: &str,
    now: Timestamp,
) -> ProviderError {
    let json = serde_json::from_str::<Value>(body).unwrap_or(Value::Null);
    // Gemini wraps the object in an array.
    let json = json.get(0).unwrap_or(&json);
    let error = json.get("error").filter(|error| !error.is_null()).unwrap_or(json);
    let detail = match message_of(error) {
        "" => one_line(&format!("status {status} {}", words_of_page(body)), DETAIL),
        message => one_line(&format!("{message} (status {status})"), DETAIL),
    };
    let words = words_of(error);
    let retry_after_s = retry_after(&header, now).or_else(|| retry_after_in(error, &words));
    match status {
        429 if words.contains("insufficient_quota") => ProviderError::Refused { detail },
        429 => match usage_limit_end(&header, error, &words, now) {
            Some(until) => ProviderError::UsageLimit { until, detail },
            None => ProviderError::RateLimited { retry_after_s, detail },
        },
        401..=403 => ProviderError::Refused { detail },
        404 => ProviderError::Missing { detail },
        413 => ProviderError::TooLong { detail },
        408 | 500.. => ProviderError::Server { retry_after_s, detail },
        _ if is_too_long(&words) => ProviderError::TooLong { detail },
        _ => ProviderError::Invalid { detail },
    }
}

/// An error event inside a stream that began with status 200; `body` is the event or the object in it.
pub(super) fn of_event(body: &Value) -> ProviderError {
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
    let words = words_of(error);
    let detail = match message_of(error) {
        "" => one_line(&error.to_string(), DETAIL),
        message => one_line(message, DETAIL),
    };
    let status = error["code"].as_u64().unwrap_or(0);
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    if is_too_long(&words) {
        ProviderError::TooLong { detail }
    } else if says(&["authentication", "permission", "invalid_api_key", "insufficient_quota", "billing"])
        || (401..=403).contains(&status)
    {
        ProviderError::Refused { detail }
    } else if says(&["rate_limit", "too_many_requests", "resource_exhausted"]) || status == 429 {
        ProviderError::RateLimited { retry_after_s: retry_after_in(error, &words), detail }
    } else if says(&["invalid_request", "not_found", "invalid_argument"]) || (400..500).contains(&status) {
        ProviderError::Invalid { detail }
    } else {
        // Overloads, internal errors, and what nobody has named yet: it may pass.
        ProviderError::Server { retry_after_s: None, detail }
    }
}

/// The connection broke while an answer came.
pub(super) fn of_cut(error: &reqwest::Error) -> ProviderError {
    ProviderError::Interrupted { detail: one_line(&innermost(error), DETAIL) }
}

/// No answer began.
pub(super) fn of_transport(error: &reqwest::Error) -> ProviderError {
    let cause = innermost(error);
    let detail = match error.url().and_then(reqwest::Url::host_str) {
        Some(host) => one_line(&format!("{host}: {cause}"), DETAIL),
        None => one_line(&cause, DETAIL),
    };
    if error.is_builder() { ProviderError::Invalid { detail } } else { ProviderError::Unreachable { detail } }
}

/// The innermost cause is the one that helps: "Connection refused (os error 111)".
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

fn message_of(error: &Value) -> &str {
    error["message"].as_str().or(error.as_str()).unwrap_or_default()
}

/// All that names the error, in lower case.
fn words_of(error: &Value) -> String {
    let parts = [&error["type"], &error["code"], &error["status"]];
    let mut words: Vec<&str> = parts.into_iter().filter_map(Value::as_str).collect();
    words.push(message_of(error));
    words.join(" ").to_lowercase()
}

fn is_too_long(words: &str) -> bool {
    TOO_LONG.iter().any(|part| words.contains(part))
}

/// Seconds to wait: `retry-after-ms`, or `retry-after` as seconds or as an HTTP date. What is neither is `None`.
fn retry_after(header: &impl Fn(&str) -> Option<String>, now: Timestamp) -> Option<f64> {
    let number = |text: String| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    if let Some(millis) = header("retry-after-ms").and_then(number) {
        return Some((millis / 1000.0).min(LONGEST_S));
    }
    let text = header("retry-after")?;
    let seconds = number(text.clone()).or_else(|| {
        let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
        Some(Timestamp::from_millis(date.timestamp().as_millisecond()).since_s(now).max(0.0))
    });
    seconds.map(|seconds| seconds.min(LONGEST_S))
}

/// Seconds to wait as the error itself says them: Gemini's `retryDelay`, or OpenAI's "try again in 1.5s".
fn retry_after_in(error: &Value, words: &str) -> Option<f64> {
    let mut details = error["details"].as_array().into_iter().flatten();
    let delay = details.find_map(|detail| detail["retryDelay"].as_str());
    let told = delay.or_else(|| words.split_once("try again in ").map(|(_, rest)| rest))?;
    seconds_of(told).map(|seconds| seconds.min(LONGEST_S))
}

/// Seconds of `1.5s`, `250ms`, `6m0s` or `2h`, at the start of a text.
fn seconds_of(text: &str) -> Option<f64> {
    let mut rest = text.trim_start();
    let mut sum = None;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..end].trim_end_matches('.').parse::<f64>() else { return sum };
        let unit = rest[end..].trim_start();
        let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let factor = match &unit[..letters] {
            "ms" => 0.001,
            "s" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => return sum,
        };
        sum = Some(sum.unwrap_or(0.0) + number * factor);
        rest = unit[letters..].trim_start();
    }
}

/// What a person reads of an error's body: the title of a page, the text of anything else.
pub(super) fn words_of_page(body: &str) -> String {
    if !body.trim_start().starts_with('<') {
        return one_line(body, DETAIL);
    }
    // Letters beyond ASCII keep their length, so that places in both texts are the same.
    let small = body.to_ascii_lowercase();
    let title = small.find("<title>").map(|at| at + "<title>".len());
    let title = title.and_then(|at| Some(&body[at..at + small[at..].find("</title>")?]));
    one_line(title.unwrap_or("no title"), DETAIL)
}

/// When a subscription's limit ends, where the provider says that it is one and when it ends.
fn usage_limit_end(
    header: &impl Fn(&str) -> Option<String>,
    error: &Value,
    words: &str,
    now: Timestamp,
) -> Option<Timestamp> {
    let at_s = |seconds: f64| Timestamp::from_millis((seconds * 1000.0) as i64);
    let until = if words.contains("usage_limit") {
        let at = error["resets_at"].as_f64().map(at_s);
        at.or_else(|| error["resets_in_seconds"].as_f64().map(|seconds| now.plus_s(seconds)))
    } else if header("anthropic-ratelimit-unified-status").as_deref() == Some("rejected") {
        header("anthropic-ratelimit-unified-reset").and_then(|text| text.trim().parse().ok()).map(at_s)
    } else {
        None
    };
    // A time that has passed is no reason to wait for it.
    until.filter(|until| *until > now).map(|until| until.min(now.plus_s(LONGEST_S)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_796_074_899_000);

    fn response(status: u16, headers: &[(&str, &str)], body: &str) -> ProviderError {
        let header =
            |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        of_response(status, header, body, NOW)
    }

    #[test]
    fn a_wait_is_told_as_it_was_asked_for() {
        let wait = |value: &str| match response(429, &[("retry-after", value)], "") {
            ProviderError::RateLimited { retry_after_s, .. } => retry_after_s,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait("3"), Some(3.0));
        assert_eq!(wait(" 1.5 "), Some(1.5));
        assert_eq!(wait("0"), Some(0.0));
        assert_eq!(wait("86400"), Some(86_400.0));
        assert_eq!(wait("Mon, 30 Nov 2026 21:41:49 GMT"), Some(10.0));
        assert_eq!(wait("Mon, 30 Nov 2026 21:00:00 GMT"), Some(0.0));
        for garbage in ["-3", "soon", "", "inf", "NaN"] {
            assert_eq!(wait(garbage), None, "{garbage}");
        }
        let both = response(503, &[("retry-after-ms", "250"), ("retry-after", "9")], "");
        assert!(matches!(both, ProviderError::Server { retry_after_s: Some(0.25), .. }));
    }

    #[test]
    fn a_wait_of_years_is_cut_so_that_nothing_overflows() {
        for huge in ["1e300", "99999999999", "Mon, 30 Nov 2099 21:41:49 GMT"] {
            let error = response(429, &[("retry-after", huge)], "");
            assert!(matches!(error, ProviderError::RateLimited { retry_after_s: Some(LONGEST_S), .. }), "{error:?}");
        }
        let body = json!({"error": {"type": "usage_limit_reached", "resets_at": 1e300}}).to_string();
        let end = NOW.plus_s(LONGEST_S);
        assert!(matches!(response(429, &[], &body), ProviderError::UsageLimit { until, .. } if until == end));
    }

    #[test]
    fn a_wait_is_found_in_the_words_of_the_error_where_no_header_has_it() {
        assert_eq!(seconds_of("1.5s. Visit"), Some(1.5));
        assert_eq!(seconds_of("6m0s"), Some(360.0));
        assert_eq!(seconds_of("250ms"), Some(0.25));
        assert_eq!(seconds_of("2 hours"), Some(7200.0));
        assert_eq!(seconds_of("a while"), None);
        let body = json!({"error": {"message": "Rate limit reached. Please try again in 20s."}}).to_string();
        let error = response(429, &[], &body);
        assert!(matches!(error, ProviderError::RateLimited { retry_after_s: Some(20.0), .. }), "{error:?}");
    }

    #[test]
    fn a_status_says_what_can_be_done() {
        assert!(matches!(response(401, &[], ""), ProviderError::Refused { .. }));
        assert!(matches!(response(403, &[], ""), ProviderError::Refused { .. }));
        assert!(matches!(response(404, &[], ""), ProviderError::Missing { .. }));
        for passing in [408, 500, 502, 503, 529] {
            assert!(matches!(response(passing, &[], ""), ProviderError::Server { .. }), "{passing}");
        }
        for final_one in [308, 400, 409, 422] {
            assert!(matches!(response(final_one, &[], ""), ProviderError::Invalid { .. }), "{final_one}");
        }
    }

    #[test]
    fn a_conversation_that_does_not_fit_is_told_from_a_wrong_request() {
        let error = |code: &str, message: &str| json!({"error": {"code": code, "message": message}}).to_string();
        for body in [
            error("context_length_exceeded", "too much"),
            error("", "prompt is too long: 210000 tokens > 200000 maximum"),
            error("", "This model's maximum context length is 8192 tokens."),
            error("", "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000"),
        ] {
            assert!(matches!(response(400, &[], &body), ProviderError::TooLong { .. }), "{body}");
        }
        assert!(matches!(response(413, &[], ""), ProviderError::TooLong { .. }));
        let wrong = error("", "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens");
        assert!(matches!(response(400, &[], &wrong), ProviderError::Invalid { .. }));
    }

    #[test]
    fn a_quota_that_does_not_come_back_is_not_waited_for() {
        let body = json!({"error": {"type": "insufficient_quota", "message": "check your plan"}}).to_string();
        let error = response(429, &[], &body);
        assert_eq!(error, ProviderError::Refused { detail: "check your plan (status 429)".into() });
    }

    #[test]
    fn a_usage_limit_says_until_when() {
        let until = Timestamp::from_millis(1_796_080_000_000);
        let headers =
            [("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-reset", "1796080000")];
        assert!(matches!(response(429, &headers, ""), ProviderError::UsageLimit { until: at, .. } if at == until));
        let body = json!({"error": {"type": "usage_limit_reached", "resets_in_seconds": 60}}).to_string();
        let past = json!({"error": {"type": "usage_limit_reached", "resets_at": 1}}).to_string();
        assert!(matches!(response(429, &[], &past), ProviderError::RateLimited { .. }));
        let in_a_minute = NOW.plus_s(60.0);
        assert!(matches!(response(429, &[], &body), ProviderError::UsageLimit { until: at, .. } if at == in_a_minute));
    }

    #[test]
    fn an_error_event_is_sorted_by_its_type() {
        let event = |kind: &str| of_event(&json!({"type": "error", "error": {"type": kind, "message": "why"}}));
        assert_eq!(event("overloaded_error"), ProviderError::Server { retry_after_s: None, detail: "why".into() });
        assert!(matches!(event("api_error"), ProviderError::Server { .. }));
        assert!(matches!(event("rate_limit_error"), ProviderError::RateLimited { .. }));
        assert_eq!(event("invalid_request_error"), ProviderError::Invalid { detail: "why".into() });
        assert!(matches!(event("authentication_error"), ProviderError::Refused { .. }));
        assert!(matches!(of_event(&json!({"code": 502, "message": "x"})), ProviderError::Server { .. }));
        assert!(matches!(of_event(&json!({"code": 429, "message": "x"})), ProviderError::RateLimited { .. }));
        assert!(matches!(of_event(&json!("boom")), ProviderError::Server { detail, .. } if detail == "boom"));
    }
}
