//! The log of a node: lines on stderr for people, for programs, or for journald.

use doyen::config::value::LogFormat;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Begins the log of this process. Without a format, stderr decides.
pub(super) fn begin(filter: EnvFilter, format: Option<LogFormat>) {
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // If the reader of the log has ended, or a disk is full, writing that to the same stderr
        // would panic and end this node.
        .log_internal_errors(false);
    let stream = std::env::var_os("JOURNAL_STREAM");
    let found = if is_journal(stream.as_deref(), std::io::stderr()) {
        LogFormat::Journald
    } else {
        LogFormat::Text
    };
    match format.unwrap_or(found) {
        LogFormat::Text => (log.with_target(false))
            .with_ansi(std::io::stderr().is_terminal())
            .init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Journald => log
            .with_ansi(false)
            .event_format(JournalLines::new())
            .init(),
    }
}

/// Whether a stream goes to journald. systemd then says which device and inode it has
/// (`JOURNAL_STREAM`, systemd.exec(5)): a child may have inherited the variable, and write
/// elsewhere.
fn is_journal(named: Option<&OsStr>, stream: impl AsFd) -> bool {
    let named = named.and_then(OsStr::to_str);
    let Some((device, inode)) = named.and_then(|named| named.split_once(':')) else {
        return false;
    };
    let about = stream.as_fd().try_clone_to_owned().map(File::from);
    about
        .and_then(|file| file.metadata())
        .is_ok_and(|about| device.parse() == Ok(about.dev()) && inode.parse() == Ok(about.ino()))
}

/// Lines that begin with a priority of syslog, as sd-daemon(3) says.
struct JournalLines(Format<Full, ()>);

impl JournalLines {
    fn new() -> Self {
        let format = tracing_subscriber::fmt::format();
        Self(format.without_time().with_target(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let mut text = String::new();
        self.0
            .format_event(context, Writer::new(&mut text), event)?;
        // Each line is an entry of its own.
        for line in text.lines() {
            writeln!(writer, "<{priority}>{}", line.trim_start())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stream_that_systemd_names_is_journald() {
        let file = tempfile::tempfile().expect("a file");
        let about = file.metadata().expect("of a file");
        let (device, inode) = (about.dev(), about.ino());
        let is = |named: &str| is_journal(Some(OsStr::new(named)), &file);
        assert!(is(&format!("{device}:{inode}")));
        for other in [
            format!("{device}:{}", inode + 1),
            format!("{}:{inode}", device + 1),
            format!("{device}"),
            String::new(),
        ] {
            assert!(!is(&other), "{other}");
        }
        assert!(!is_journal(None, &file));
    }
}
