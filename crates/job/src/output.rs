//! Where the output of launchers goes: to our own, line by line with a label, or into files.

use crate::spec::{ClusterSpec, Launcher};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Longer lines are passed on in pieces.
const MAX_LINE: u64 = 64 << 10;
const UNKNOWN: u32 = u32::MAX;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// Cluster and rank before each line.
    pub label: bool,
    /// One file for each cluster and stream in this directory, instead of our own output.
    pub directory: Option<PathBuf>,
}

/// The rank of each cluster's first process in `MPI_COMM_WORLD`, as soon as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Bases(Arc<Vec<AtomicU32>>);

/// How one stream of a launcher is taken.
pub(crate) enum Sink {
    /// The launcher writes to our own output itself.
    Inherit,
    /// The launcher writes to a file itself.
    File(File),
    /// We read, and write on.
    Read(Reading),
}

/// What is done with a stream that we read.
pub(crate) enum Reading {
    /// Lines are labelled; what cannot be written is left out, which is said, and its writer goes on. Only when our reader has gone
    /// nothing more is read, so that the writer hears of it, as it would if it wrote there itself.
    Label(Label),
    /// Passed on as it is; what cannot be written is left out, and its writer goes on.
    Pass,
    /// The same, but to our standard error, whatever stream it is.
    ForPeople,
    /// As it is, from the cluster of this name; that something cannot be written is said.
    Cluster(String),
}

/// Puts the cluster and, where the launcher shows it, the rank before a line.
#[derive(Clone)]
pub(crate) struct Label {
    cluster: usize,
    name: String,
    bases: Bases,
}

impl Label {
    /// The cluster's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Bases {
    /// Counts as long as the sizes of the clusters before are known.
    pub(crate) fn new(sizes: &[Option<u32>]) -> Self {
        let bases = Self(Arc::new(sizes.iter().map(|_| AtomicU32::new(UNKNOWN)).collect()));
        bases.learn(sizes.iter().copied());
        bases
    }

    pub(crate) fn learn(&self, sizes: impl IntoIterator<Item = Option<u32>>) {
        let mut base = Some(0u32);
        for (slot, size) in self.0.iter().zip(sizes) {
            slot.store(base.unwrap_or(UNKNOWN), Ordering::Relaxed);
            base = base.and_then(|base| base.checked_add(size?));
        }
    }

    fn world(&self, cluster: usize, rank: u32) -> Option<u32> {
        let base = self.0.get(cluster)?.load(Ordering::Relaxed);
        if base == UNKNOWN { None } else { base.checked_add(rank) }
    }
}

impl OutputOptions {
    /// Whether launchers should show the rank themselves.
    pub(crate) const fn wants_ranks(&self) -> bool {
        self.label
    }

    /// Sinks for stdout and stderr of a cluster that this machine starts, perhaps by an ssh. Its `files`, if it has some, begin anew.
    pub(crate) fn sinks(
        &self,
        cluster: usize,
        name: &str,
        bases: &Bases,
        files: Option<Files>,
        is_ssh: bool,
    ) -> io::Result<(Sink, Sink)> {
        if let Some(files) = files {
            files.iter().try_for_each(begin_anew)?;
            let [out, err] = files;
            return Ok((Sink::File(out), Sink::File(err)));
        }
        if !self.label && is_ssh {
            let read = || Sink::Read(Reading::Cluster(name.to_owned()));
            return Ok((read(), read()));
        }
        if !self.label {
            return Ok((Sink::Inherit, Sink::Inherit));
        }
        let label = Label { cluster, name: name.to_owned(), bases: bases.clone() };
        let read = |label| Sink::Read(Reading::Label(label));
        Ok((read(label.clone()), read(label)))
    }

    /// Makes the directory and opens the files of clusters that are not started elsewhere, so that errors come before anything is
    /// started. What an earlier job has left in them stays until then.
    pub(crate) fn prepare(&self, clusters: &[ClusterSpec]) -> Result<Vec<Option<Files>>, String> {
        let Some(directory) = &self.directory else {
            return Ok(clusters.iter().map(|_| None).collect());
        };
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("cannot make the directory {}: {error}", shown(directory)))?;
        let open = |cluster: &ClusterSpec, ending: &str| {
            let path = directory.join(format!("{}.{ending}", cluster.name));
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            file.map_err(|error| {
                format!(
                    "cannot write {}: {error}. Name another directory by --output",
                    shown(&path)
                )
            })
        };
        let files = |cluster: &ClusterSpec| match cluster.launcher {
            Launcher::Join => Ok(None),
            Launcher::Command(_) => Ok(Some([open(cluster, "out")?, open(cluster, "err")?])),
        };
        clusters.iter().map(files).collect()
    }
}

/// Those of a cluster's stdout and stderr.
pub(crate) type Files = [File; 2];

/// Pipes and devices have no length.
fn begin_anew(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

impl Sink {
    /// What the ssh to a head node writes for people, on both of its streams. It makes streams that it is given non-blocking, for all
    /// who have them, and leaves them so when it is killed: ours are no others' then.
    pub(crate) fn of_ssh() -> (Self, Self) {
        (Self::Read(Reading::ForPeople), Self::Read(Reading::ForPeople))
    }

    /// What the launcher gets as its stream, and what is to be done if we are to read it.
    pub(crate) fn split(self) -> (Stdio, Option<Reading>) {
        match self {
            Self::Inherit => (Stdio::inherit(), None),
            Self::File(file) => (Stdio::from(file), None),
            Self::Read(reading) => (Stdio::piped(), Some(reading)),
        }
    }
}

/// What a pump does: even while it waits to read, odd while it writes; every change counts.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicU64);

impl Turns {
    fn next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there have been.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether it has waited to read since it was at that count.
    pub(crate) fn has_waited_since(&self, count: u64) -> bool {
        count.is_multiple_of(2) && self.count() == count
    }
}

/// Copies bytes until the end of `from`, or until that cannot be read. Nothing more is written after a failure, which is told by
/// `complain` unless it is that nobody reads `to` any more.
pub(crate) fn pass(
    mut from: impl Read,
    to: &mut impl Write,
    turns: &Turns,
    complain: impl Fn(&io::Error),
) {
    let mut bytes = [0; 16 << 10];
    let mut is_open = true;
    loop {
        let count = match from.read(&mut bytes) {
            Ok(count) if count > 0 => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            _ => return,
        };
        turns.next();
        let written = match is_open {
            true => to.write_all(&bytes[..count]).and_then(|()| to.flush()),
            false => Ok(()),
        };
        turns.next();
        if let Err(error) = written {
            is_open = false;
            if error.kind() != io::ErrorKind::BrokenPipe {
                complain(&error);
            }
        }
    }
}

/// Copies lines until the end of `from`, or until that cannot be read, or nobody reads `to` any more. Nothing more is written after
/// another failure, which is told by `complain`.
pub(crate) fn pump(
    from: impl Read,
    label: &Label,
    to: &mut impl Write,
    turns: &Turns,
    complain: impl Fn(&io::Error),
) {
    let mut from = BufReader::new(from);
    let (mut fresh, mut is_open) = (true, true);
    loop {
        let mut line = Vec::new();
        let count = match (&mut from).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(count) => count as u64,
            Err(_) => 0,
        };
        if count == 0 && fresh {
            return;
        }
        turns.next();
        // Less than a piece without a line end is the last that comes, and others' lines may follow it.
        let ends = line.ends_with(b"\n") || count < MAX_LINE;
        let mut whole = if fresh { label.put(&line) } else { line };
        if ends && !whole.ends_with(b"\n") {
            whole.push(b'\n');
        }
        let written = if is_open { to.write_all(&whole).and_then(|()| to.flush()) } else { Ok(()) };
        turns.next();
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return,
            Err(error) => {
                is_open = false;
                complain(&error);
            }
            Ok(()) => {}
        }
        fresh = ends;
    }
}

impl Label {
    fn put(&self, line: &[u8]) -> Vec<u8> {
        let (rank, text) = match local_rank(line) {
            Some((rank, text)) => (self.bases.world(self.cluster, rank), text),
            None => (None, line),
        };
        let mut whole = match rank {
            Some(rank) => format!("[{} {rank}] ", self.name),
            None => format!("[{}] ", self.name),
        }
        .into_bytes();
        whole.extend_from_slice(text);
        whole
    }
}

/// Reads the rank that a launcher put before a line: `[3] ` (hydra), `[1,3]<stdout>:` (Open MPI),
/// `3: ` (srun).
fn local_rank(line: &[u8]) -> Option<(u32, &[u8])> {
    let (start, opened) = match line.first()? {
        b'[' => (1, true),
        _ => (0, false),
    };
    let inner = &line[start..];
    if !opened {
        let (rank, rest) = number(inner)?;
        return Some((rank, rest.strip_prefix(b": ")?));
    }
    let (first, rest) = number(inner)?;
    if let Some(rest) = rest.strip_prefix(b"] ") {
        return Some((first, rest));
    }
    let (rank, rest) = number(rest.strip_prefix(b",")?)?;
    let rest = rest.strip_prefix(b"]<")?;
    let rest = rest.strip_prefix(b"stdout>:").or_else(|| rest.strip_prefix(b"stderr>:"))?;
    // Release 5 puts a blank behind the tag, release 4 none.
    Some((rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((value, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(text: &str, sizes: &[Option<u32>]) -> String {
        let bases = Bases::new(sizes);
        let label = Label { cluster: 1, name: "b".to_owned(), bases };
        let mut out = Vec::new();
        pump(text.as_bytes(), &label, &mut out, &Turns::default(), |error| panic!("{error}"));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ranks_are_those_of_the_world() {
        let sizes = [Some(4), Some(2)];
        for (given, expected) in [
            ("[1] hello\n", "[b 5] hello\n"),
            ("[1,0]<stdout>:hello\n", "[b 4] hello\n"),
            ("[1,0]<stderr>: hello\n", "[b 4] hello\n"),
            ("0: hello\n", "[b 4] hello\n"),
            ("[mpiexec@node] oops\n", "[b] [mpiexec@node] oops\n"),
            ("plain", "[b] plain\n"),
            ("", ""),
        ] {
            assert_eq!(labelled(given, &sizes), expected);
        }
        assert_eq!(labelled("[1] x\n", &[None, Some(2)]), "[b] x\n");
    }

    #[test]
    fn bases_are_learnt_when_the_clusters_have_come() {
        let bases = Bases::new(&[None, None, None]);
        assert_eq!((bases.world(0, 3), bases.world(1, 0)), (Some(3), None));
        bases.learn([Some(2), Some(5), Some(1)]);
        assert_eq!((bases.world(1, 1), bases.world(2, 0)), (Some(3), Some(7)));
    }

    /// Takes what it is given while `turns` shows that something is written.
    struct Slow<'a>(&'a Turns);

    impl Write for Slow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = self.0.count();
            assert!(!self.0.has_waited_since(count), "it writes");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pump_that_writes_does_not_wait_to_read() {
        let turns = Turns::default();
        let label = Label { cluster: 0, name: "a".to_owned(), bases: Bases::new(&[None]) };
        assert!(turns.has_waited_since(0));
        pump(&b"1\n2\n"[..], &label, &mut Slow(&turns), &turns, |error| panic!("{error}"));
        assert!(turns.has_waited_since(4) && !turns.has_waited_since(2));
    }

    /// Takes so much, and fails then.
    struct Short(Vec<u8>, usize, io::ErrorKind);

    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.1.saturating_sub(self.0.len()).min(bytes.len()) {
                0 => Err(self.2.into()),
                count => self.0.write(&bytes[..count]),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_passed_on_is_read_to_its_end_even_if_nobody_takes_it() {
        let text = vec![b'x'; 100_000];
        for room in [0, 5, 40_000, 100_000] {
            for (kind, most) in [(io::ErrorKind::BrokenPipe, 0), (io::ErrorKind::StorageFull, 1)] {
                let (mut from, mut to) = (&text[..], Short(Vec::new(), room, kind));
                let said = std::cell::Cell::new(0);
                pass(&mut from, &mut to, &Turns::default(), |_| said.set(said.get() + 1));
                assert_eq!((from.len(), to.0.len()), (0, room));
                assert_eq!(said.get(), if room < text.len() { most } else { 0 });
            }
        }
    }

    #[test]
    fn labelled_lines_are_read_on_if_they_cannot_be_written_and_not_if_nobody_reads_them() {
        let text = "0123456789\n".repeat(10_000);
        let label = Label { cluster: 0, name: "a".to_owned(), bases: Bases::new(&[None]) };
        for (kind, complaints) in [(io::ErrorKind::StorageFull, 1), (io::ErrorKind::BrokenPipe, 0)]
        {
            let (mut from, mut to) = (text.as_bytes(), Short(Vec::new(), 20, kind));
            let said = std::cell::Cell::new(0);
            pump(&mut from, &label, &mut to, &Turns::default(), |_| said.set(said.get() + 1));
            assert_eq!((from.is_empty(), to.0.len()), (complaints > 0, 20), "{kind}");
            assert_eq!(said.get(), complaints, "{kind}");
        }
    }

    #[test]
    fn line_ends_are_where_lines_end_whatever_labels_are_exchanged() {
        let sizes = [Some(4), Some(2)];
        let piece = MAX_LINE as usize;
        for (given, told) in [("[1,0]<stdout>:", "[b 4] "), ("", "[b] ")] {
            for length in [piece - 20, piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 7] {
                let text = "x".repeat(length - given.len());
                for end in ["", "\n"] {
                    let out = labelled(&format!("{given}{text}{end}"), &sizes);
                    assert!(out == format!("{told}{text}\n"), "{given} {length} {end:?}");
                }
            }
        }
    }

    #[test]
    fn long_lines_keep_one_label_and_lose_nothing() {
        let long = "x".repeat(3 * MAX_LINE as usize + 5);
        let out = labelled(&format!("{long}\n"), &[None, None]);
        assert_eq!(out, format!("[b] {long}\n"));
    }
}
