//! The bytes of a datatype in type-map order, as nested repetitions of strided runs.
//!
//! A node knows only where data lies; sizes and bounds that MPI adds are [`crate::Layout`]'s. Runs are
//! merged as they are built: a vector of a million blocks is one run, an array of dense structures is
//! one run of one block, and what cannot be merged is shared instead of written out.
//!
//! Offsets are added with wrapping arithmetic: [`crate::Layout`] has checked that the data of an element
//! lies within 63 bits, and what wraps can only belong to memory that does not exist.

use std::ops::ControlFlow;
use std::sync::Arc;

/// `count` blocks of `len` bytes, the first at `offset`, each `stride` bytes after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes from the element's address to the first block; may be negative.
    pub offset: i64,
    /// Bytes of one block; above 0.
    pub len: u64,
    /// Blocks; above 0.
    pub count: u64,
    /// Bytes from the start of one block to the next; may be 0 or negative; 0 for one block.
    pub stride: i64,
}

/// Lists up to this long are copied into the list that holds them, so that their runs can merge.
const FLATTEN: usize = 8;

/// Data in order. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// No data.
    Empty,
    /// One strided run.
    Run(Run),
    /// `child` repeated `count` times, `stride` bytes apart, the first moved by `offset`.
    Repeat { child: Arc<Node>, offset: i64, count: u64, stride: i64 },
    /// Nodes one after the other, all moved by `offset`.
    List { list: Arc<List>, offset: i64 },
}

/// The entries of a [`Node::List`], with what is asked of them often.
#[derive(Debug)]
pub(crate) struct List {
    entries: Vec<Entry>,
    size: u64,
    blocks: u64,
}

#[derive(Debug)]
struct Entry {
    /// Bytes of data before this entry.
    start: u64,
    node: Node,
}

impl Run {
    /// One block.
    pub(crate) fn block(offset: i64, len: u64) -> Self {
        Self { offset, len, count: 1, stride: 0 }
    }

    /// The offset of block `index`.
    pub(crate) fn at(&self, index: u64) -> i64 {
        self.offset.wrapping_add(self.stride.wrapping_mul(index as i64))
    }

    /// The first `count` blocks, above 0.
    fn first(&self, count: u64) -> Self {
        let stride = if count == 1 { 0 } else { self.stride };
        Self { count, stride, ..*self }
    }

    fn size(&self) -> u64 {
        self.len.saturating_mul(self.count)
    }

    fn shifted(self, by: i64) -> Self {
        Self { offset: self.offset.wrapping_add(by), ..self }
    }

    fn repeated(self, count: u64, stride: i64) -> Option<Self> {
        if self.count == 1 && stride == self.len as i64 {
            return Some(Self::block(self.offset, self.size().saturating_mul(count)));
        }
        if self.count == 1 {
            return Some(Self { count, stride, ..self });
        }
        let follows = stride == self.stride.wrapping_mul(self.count as i64);
        follows.then(|| Self { count: self.count.saturating_mul(count), ..self })
    }

    /// This run and then `next` as one run, if that is one.
    fn joined(self, next: Self) -> Option<Self> {
        if self.count == 1
            && next.count == 1
            && next.offset == self.at(0).wrapping_add(self.len as i64)
        {
            return Some(Self { len: self.len.saturating_add(next.len), ..self });
        }
        if self.len != next.len {
            return None;
        }
        let stride = match (self.count, next.count) {
            (1, 1) => next.offset.wrapping_sub(self.offset),
            (1, _) => next.stride,
            _ => self.stride,
        };
        let joined = Self { stride, count: self.count.saturating_add(next.count), ..self };
        let fits =
            joined.at(self.count) == next.offset && (next.count == 1 || next.stride == stride);
        fits.then_some(joined)
    }
}

impl Node {
    /// `len` bytes at offset 0.
    pub(crate) fn dense(len: u64) -> Self {
        if len == 0 { Self::Empty } else { Self::Run(Run::block(0, len)) }
    }

    /// Bytes of data; saturates for counts that no memory can hold.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Run(run) => run.size(),
            Self::Repeat { child, count, .. } => child.size().saturating_mul(*count),
            Self::List { list, .. } => list.size,
        }
    }

    /// Contiguous blocks of data, as they are walked.
    pub(crate) fn blocks(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Run(run) => run.count,
            Self::Repeat { child, count, .. } => child.blocks().saturating_mul(*count),
            Self::List { list, .. } => list.blocks,
        }
    }

    /// The one contiguous block that this is, if it is one.
    pub(crate) fn as_block(&self) -> Option<Run> {
        match self {
            Self::Run(run) if run.count == 1 => Some(*run),
            _ => None,
        }
    }

    /// The same data `by` bytes further on.
    pub(crate) fn shifted(&self, by: i64) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Run(run) => Self::Run(run.shifted(by)),
            Self::Repeat { child, offset, count, stride } => Self::Repeat {
                child: Arc::clone(child),
                offset: offset.wrapping_add(by),
                count: *count,
                stride: *stride,
            },
            Self::List { list, offset } => {
                Self::List { list: Arc::clone(list), offset: offset.wrapping_add(by) }
            }
        }
    }

    /// This data `count` times, `stride` bytes apart.
    pub(crate) fn repeated(&self, count: u64, stride: i64) -> Self {
        match self {
            Self::Empty => return Self::Empty,
            _ if count == 0 => return Self::Empty,
            _ if count == 1 => return self.clone(),
            Self::Run(run) => {
                if let Some(run) = run.repeated(count, stride) {
                    return Self::Run(run);
                }
            }
            Self::Repeat { child, offset, count: inner, stride: step }
                if stride == step.wrapping_mul(*inner as i64) =>
            {
                return Self::Repeat {
                    child: Arc::clone(child),
                    offset: *offset,
                    count: inner.saturating_mul(count),
                    stride: *step,
                };
            }
            Self::Repeat { .. } | Self::List { .. } => {}
        }
        Self::Repeat { child: Arc::new(self.clone()), offset: 0, count, stride }
    }

    /// Calls `emit` with the runs that hold the `len` bytes of data from `skip`, in order, moved by
    /// `base`; stops when `emit` breaks. The bytes must lie within the data.
    pub(crate) fn walk<F>(&self, base: i64, skip: u64, len: u64, emit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Run) -> ControlFlow<()>,
    {
        if len == 0 {
            return ControlFlow::Continue(());
        }
        if skip == 0 && len == self.size() {
            return self.walk_all(base, emit);
        }
        match self {
            Self::Empty => ControlFlow::Continue(()),
            Self::Run(run) => walk_run(run.shifted(base), skip, len, emit),
            Self::Repeat { child, offset, stride, .. } => {
                let size = child.size();
                let (mut index, mut skip, mut len) = (skip / size, skip % size, len);
                while len > 0 {
                    let part = len.min(size - skip);
                    let shift = offset.wrapping_add(stride.wrapping_mul(index as i64));
                    child.walk(base.wrapping_add(shift), skip, part, emit)?;
                    (index, skip, len) = (index + 1, 0, len - part);
                }
                ControlFlow::Continue(())
            }
            Self::List { list, offset } => list.walk(base.wrapping_add(*offset), skip, len, emit),
        }
    }

    /// As [`Self::walk`], of all the data: nothing to divide, nothing to search.
    fn walk_all<F>(&self, base: i64, emit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Run) -> ControlFlow<()>,
    {
        match self {
            Self::Empty => ControlFlow::Continue(()),
            Self::Run(run) => emit(run.shifted(base)),
            Self::Repeat { child, offset, count, stride } => {
                let mut base = base.wrapping_add(*offset);
                for _ in 0..*count {
                    child.walk_all(base, emit)?;
                    base = base.wrapping_add(*stride);
                }
                ControlFlow::Continue(())
            }
            Self::List { list, offset } => {
                let base = base.wrapping_add(*offset);
                list.entries.iter().try_for_each(|entry| entry.node.walk_all(base, emit))
            }
        }
    }
}

impl List {
    fn walk<F>(&self, base: i64, skip: u64, mut len: u64, emit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Run) -> ControlFlow<()>,
    {
        let first = self.entries.partition_point(|entry| entry.start <= skip) - 1;
        let mut skip = skip - self.entries[first].start;
        for entry in &self.entries[first..] {
            if len == 0 {
                break;
            }
            let part = len.min(entry.node.size() - skip);
            entry.node.walk(base, skip, part, emit)?;
            (skip, len) = (0, len - part);
        }
        ControlFlow::Continue(())
    }
}

/// The part of a run that holds `len` bytes from `skip`: the rest of a block, whole blocks, a start.
fn walk_run<F>(run: Run, skip: u64, len: u64, emit: &mut F) -> ControlFlow<()>
where
    F: FnMut(Run) -> ControlFlow<()>,
{
    let (mut index, within) = (skip / run.len, skip % run.len);
    let mut len = len;
    if within > 0 {
        let part = len.min(run.len - within);
        emit(Run::block(run.at(index).wrapping_add(within as i64), part))?;
        (index, len) = (index + 1, len - part);
    }
    let whole = len / run.len;
    if whole > 0 {
        emit(Run { offset: run.at(index), ..run.first(whole) })?;
    }
    let rest = len % run.len;
    if rest > 0 {
        emit(Run::block(run.at(index + whole), rest))?;
    }
    ControlFlow::Continue(())
}

/// Nodes put one after the other, merged where they can be.
#[derive(Default)]
pub(crate) struct Sequence {
    nodes: Vec<Node>,
}

impl Sequence {
    /// Adds `node` at the end.
    pub(crate) fn push(&mut self, node: Node) {
        match node {
            Node::Empty => {}
            Node::Run(run) => self.push_run(run),
            Node::List { ref list, offset } if list.entries.len() <= FLATTEN => {
                for entry in &list.entries {
                    self.push(entry.node.shifted(offset));
                }
            }
            node => self.nodes.push(node),
        }
    }

    fn push_run(&mut self, next: Run) {
        if let Some(Node::Run(last)) = self.nodes.last_mut() {
            if let Some(joined) = last.joined(next) {
                *last = joined;
                return;
            }
            // A block that touches the last of several: contiguous data is worth more than a stride.
            let tail = Run::block(last.at(last.count - 1), last.len);
            if last.count > 1
                && let Some(joined) = tail.joined(next)
                && joined.count == 1
            {
                *last = last.first(last.count - 1);
                return self.nodes.push(Node::Run(joined));
            }
        }
        self.nodes.push(Node::Run(next));
    }

    /// All of it as one node.
    pub(crate) fn finish(mut self) -> Node {
        if self.nodes.len() <= 1 {
            return self.nodes.pop().unwrap_or(Node::Empty);
        }
        let (mut size, mut blocks) = (0u64, 0u64);
        let mut entries = Vec::with_capacity(self.nodes.len());
        for node in self.nodes {
            let (more, count) = (node.size(), node.blocks());
            entries.push(Entry { start: size, node });
            size = size.saturating_add(more);
            blocks = blocks.saturating_add(count);
        }
        Node::List { list: Arc::new(List { entries, size, blocks }), offset: 0 }
    }
}
