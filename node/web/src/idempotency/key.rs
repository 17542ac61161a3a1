//! The header `Idempotency-Key`.

use crate::problem::ProblemResponse;
use axum::http::{HeaderMap, StatusCode};

/// The name of the header.
const NAME: &str = "idempotency-key";
/// The longest key, in bytes.
const BYTES_MAX: usize = 255;

/// The key of a request. The draft has it in quotes, as a string of RFC 9651; many programs send it
/// without, so both are taken, and mean the same.
pub(super) fn of_headers(headers: &HeaderMap) -> Result<Option<String>, ProblemResponse> {
    let mut values = headers.get_all(NAME).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid("is there more than once"));
    }
    let value = value.to_str().map_err(|_| invalid("is not ASCII"))?.trim();
    let key = match value.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or_else(|| invalid("is not a quoted string"))?,
        None => value.to_owned(),
    };
    match key.len() {
        0 => Err(invalid("is empty")),
        1..=BYTES_MAX => Ok(Some(key)),
        _ => Err(invalid("is longer than 255 bytes")),
    }
}

/// What stands before the closing quote, which must be the end.
fn unquoted(quoted: &str) -> Option<String> {
    let mut key = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(key),
            '\\' => key.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
}

fn invalid(why: &str) -> ProblemResponse {
    ProblemResponse::new(
        StatusCode::BAD_REQUEST,
        format!("The header Idempotency-Key {why}."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn key(values: &[&[u8]]) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value).expect("HTTP lets it pass");
            headers.append(NAME, value);
        }
        of_headers(&headers).map_err(|problem| problem.detail)
    }

    #[test]
    fn a_key_is_the_same_with_and_without_quotes() {
        let id = "8e03978e-40d5-43dd-bc93-6894a57f9324";
        assert_eq!(key(&[id.as_bytes()]), Ok(Some(id.into())));
        assert_eq!(key(&[format!("\"{id}\"").as_bytes()]), Ok(Some(id.into())));
        assert_eq!(key(&[br#""a\"b\\c""#]), Ok(Some(r#"a"b\c"#.into())));
        assert_eq!(key(&[]), Ok(None));
    }

    #[test]
    fn a_malformed_key_is_refused() {
        let (longest, too_long) = ("k".repeat(255), "k".repeat(256));
        assert_eq!(key(&[longest.as_bytes()]), Ok(Some(longest.clone())));
        let cases: [(&[&[u8]], &str); 9] = [
            (&[b""], "is empty"),
            (&[b"\"\""], "is empty"),
            (&[too_long.as_bytes()], "is longer than 255 bytes"),
            (&[b"a", b"a"], "is there more than once"),
            (&["é".as_bytes()], "is not ASCII"),
            (&[b"\"a"], "is not a quoted string"),
            (&[b"\"a\"b"], "is not a quoted string"),
            (&[b"\"a\\n\""], "is not a quoted string"),
            (&[b"\"a\\"], "is not a quoted string"),
        ];
        for (values, why) in cases {
            let told = key(values).expect_err("it is malformed");
            assert_eq!(told, format!("The header Idempotency-Key {why}."));
        }
    }
}
