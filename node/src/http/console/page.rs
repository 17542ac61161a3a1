//! The files of the page. They are compressed when the program is built, and no file comes from
//! elsewhere.

use super::super::failure::HttpFailure;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::io::Read;

/// What a browser may do for this page: load these files, and ask this node.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// A file of the page, compressed.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    gzip: &'static [u8],
}

macro_rules! files {
    ($($name:literal: $kind:literal),* $(,)?) => {
        const FILES: &[PageFile] = &[$(PageFile {
            name: $name,
            kind: $kind,
            gzip: include_bytes!(concat!(env!("OUT_DIR"), "/console/", $name, ".gz")),
        }),*];
    };
}

files! {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "feed.js": "text/javascript; charset=utf-8",
    "views.js": "text/javascript; charset=utf-8",
    "known.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "actions.js": "text/javascript; charset=utf-8",
    "overview.js": "text/javascript; charset=utf-8",
    "members.js": "text/javascript; charset=utf-8",
    "partitions.js": "text/javascript; charset=utf-8",
    "data.js": "text/javascript; charset=utf-8",
    "keys.js": "text/javascript; charset=utf-8",
    "clients.js": "text/javascript; charset=utf-8",
    "events.js": "text/javascript; charset=utf-8",
    "access.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

pub(in super::super) async fn index(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

pub(in super::super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    answer(&name, &headers)
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        let why = "the page has no such file: load / again";
        return HttpFailure(StatusCode::NOT_FOUND, why.into()).into_response();
    };
    let accepts = headers.get(header::ACCEPT_ENCODING);
    let accepts = accepts.and_then(|value| value.to_str().ok());
    let head = [
        (header::CONTENT_TYPE, file.kind),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A node of another version serves other files under these names.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    if accepts.is_some_and(|accepts| accepts.contains("gzip")) {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (head, encoding, file.gzip).into_response();
    }
    let mut whole = Vec::new();
    // A Vec takes all, and the file was compressed when the program was built.
    if flate2::read::GzDecoder::new(file.gzip)
        .read_to_end(&mut whole)
        .is_err()
    {
        let why = "this file of the program is damaged: install the program again";
        return HttpFailure(StatusCode::INTERNAL_SERVER_ERROR, why.into()).into_response();
    }
    (head, whole).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_page_is_small_and_loads_nothing_from_elsewhere() {
        let size: usize = FILES.iter().map(|file| file.gzip.len()).sum();
        assert!(size < 200 << 10, "{size} bytes");
        for file in FILES {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/console/page");
            let text = std::fs::read_to_string(format!("{folder}/{}", file.name)).unwrap();
            for foreign in [
                "https://",
                "http://",
                "eval(",
                "innerHTML",
                "style=\"",
                "onclick=",
            ] {
                // Names of namespaces and links to pages that a person may follow.
                let text = text
                    .replace("http://www.w3.org/", "")
                    .replace("https://github.com/doyen-grid/doyen", "");
                assert!(!text.contains(foreign), "{} has {foreign}", file.name);
            }
        }
    }

    /// `curl` without options got an error.
    #[tokio::test]
    async fn a_client_that_knows_no_compression_gets_plain_files() {
        let page = answer("index.html", &HeaderMap::new());
        assert_eq!(page.status(), StatusCode::OK);
        assert!(!page.headers().contains_key(header::CONTENT_ENCODING));
        let body = axum::body::to_bytes(page.into_body(), 1 << 20).await;
        assert!(body.unwrap().starts_with(b"<!doctype html>"));
    }

    #[test]
    fn files_are_sent_compressed_with_a_policy() {
        let mut headers = HeaderMap::new();
        let gzip = HeaderValue::from_static("br, gzip");
        headers.insert(header::ACCEPT_ENCODING, gzip);
        let page = answer("index.html", &headers);
        assert_eq!(page.status(), StatusCode::OK);
        assert_eq!(page.headers()[header::CONTENT_ENCODING], "gzip");
        let policy = page.headers()[header::CONTENT_SECURITY_POLICY].to_str();
        assert!(policy.unwrap().starts_with("default-src 'none'"));
        let absent = answer("../Cargo.toml", &headers);
        assert_eq!(absent.status(), StatusCode::NOT_FOUND);
    }
}
