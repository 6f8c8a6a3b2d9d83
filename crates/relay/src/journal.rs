//! Lines of the log for systemd's journal: each begins with its priority (sd-daemon(3)), so that `journalctl -p err` finds it.

use std::io::{self, Write};
use std::os::fd::AsFd;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Where lines go: standard error.
pub(crate) struct Lines {
    is_journal: bool,
}

impl Lines {
    /// Finds out whether the journal reads them.
    pub(crate) fn new() -> Self {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let ours = rustix::fs::fstat(io::stderr().as_fd()).ok();
        let ours = ours.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        // It is handed on to children, whose standard error may be something else.
        Self { is_journal: named.is_some() && named == ours }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(None)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line(self.is_journal.then(|| priority(*meta.level())))
    }
}

/// What goes before the next of it.
pub(crate) struct Line(Option<&'static str>);

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self.0.take() {
            // In one go, or lines of other threads may come between.
            Some(before) => {
                io::stderr().write_all(&[before.as_bytes(), text].concat())?;
                Ok(text.len())
            }
            None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}
