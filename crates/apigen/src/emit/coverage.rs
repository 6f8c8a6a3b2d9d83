//! What is served, what is refused, what is the vendor's: as rows, and as `docs/coverage.md`.

use crate::policy::{Class, Gate};
use crate::{Entry, Table};
use std::fmt::Write as _;

/// What is said of one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As in C.
    pub procedure: String,
    /// Has a large-count form, which is of the same class.
    pub large: bool,
    /// The version of MPI that brought it, where later than 3.1; or `extension`.
    pub since: Option<String>,
    /// `served`, `refused` or `vendor`.
    pub class: &'static str,
    /// When it is ours (served), what to do instead (refused), why it may fall through (vendor).
    pub note: String,
}

/// A row for every procedure, by name.
pub fn rows(table: &Table) -> Vec<Row> {
    table.entries.iter().map(row).collect()
}

fn row(entry: &Entry) -> Row {
    let (class, note) = match &entry.class {
        Class::Served(_) => ("served", when(entry.gate()).to_owned()),
        Class::Refused(remedy) => ("refused", remedy.clone()),
        Class::Vendor(reason) => ("vendor", reason.clone()),
    };
    let extension = entry.procedure.abis.as_ref().map(|_| "extension");
    Row {
        procedure: entry.procedure.name.clone(),
        large: entry.procedure.large,
        since: entry.procedure.since.clone().or_else(|| extension.map(str::to_owned)),
        class,
        note,
    }
}

fn when(gate: Gate) -> &'static str {
    match gate {
        Gate::Comm => "on communicators across clusters",
        Gate::Request => "for requests across clusters",
        Gate::Message => "for messages from other clusters",
        Gate::Group => "for groups of communicators across clusters",
        Gate::Rate => "on communicators across clusters; attributes about rates on all",
        Gate::Datatype => "drops what is remembered about the datatype",
        Gate::Active | Gate::Always => "in a job",
    }
}

/// What no table says.
const LIMITS: &str = "\
## Limits

In a job of several clusters, on a communicator that lies in one of them:

* Blocking collectives, `MPI_Comm_dup` and `MPI_Comm_dup_with_info` run as the vendor's nonblocking procedures, whatever else is under way, so that
  receives which may match messages of several clusters (`MPI_ANY_SOURCE` on a communicator across clusters, and what must come after such a one)
  are served meanwhile. `MPI_Bsend` and `MPI_Ibsend` leave from copies of GridMPI's for the same reason.
* Such receives are not served while a process waits inside the vendor in one of these: `MPI_Comm_split`, `MPI_Comm_split_type`, `MPI_Comm_create`,
  `MPI_Comm_create_group`, `MPI_Cart_create`, `MPI_Graph_create` and all else that makes a communicator, `MPI_Win_*`, `MPI_File_*`,
  `MPI_Neighbor_*`, `MPI_Buffer_flush`, and `MPI_Buffer_detach` where a request of `MPI_Bsend_init` or a buffer of a communicator's own is
  concerned. A program hangs where a member of the communicator comes there only when such a receive of another member, who is
  there already, has been served.

With `MPI_THREAD_MULTIPLE`:

* A thread that waits inside the vendor already, as blocking sends and receives within a cluster, `MPI_Wait` and `MPI_Probe` may, does not serve such a
  receive that another thread starts meanwhile. It is served in the next call that waits, tests or probes, by any thread. A program
  hangs where the first thread's wait ends only when the receive has been served, and no other thread makes such a call until then.

On communicators across clusters:

* A reduction takes 2^31-1 elements at most. Collectives whose parts inside a cluster are more than 2^31-1 bytes in all need parts whose lengths in bytes have a common
  divisor: the elements of one type have. Where they have none that is great enough the call returns `MPI_ERR_COUNT`.
";

/// `docs/coverage.md`.
pub fn markdown(table: &Table) -> String {
    let rows = rows(table);
    let mut out = format!(
        "# Coverage of MPI {}\n\n\
         Written from `api/` by `cargo run -p gridmpi-apigen --bin apigen coverage`; a test compares. `gridmpi coverage` prints\n\
         the same. A row stands for the large-count form (`_c`) too, where there is one and the vendor has it.\n\
         On a communicator that lies in one cluster everything is the vendor's own, and everything works; see Limits at\n\
         the end.\n\n",
        table.standard
    );
    for (class, title, meaning) in [
        ("served", "Served", "Work across clusters."),
        (
            "refused",
            "Refused",
            "Return `MPI_ERR_UNSUPPORTED_OPERATION`, with a line that names the procedure, when they meet a communicator across clusters, or one of its requests or groups.",
        ),
        ("vendor", "The vendor's", "Not intercepted."),
    ] {
        let of_class: Vec<_> = rows.iter().filter(|row| row.class == class).collect();
        let _ = write!(
            out,
            "## {title}: {}\n\n{meaning}\n\n| procedure | `_c` | since | |\n| --- | --- | --- | --- |\n",
            of_class.len()
        );
        for row in of_class {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} |",
                row.procedure,
                if row.large { "yes" } else { "" },
                row.since.as_deref().unwrap_or(""),
                row.note
            );
        }
        out.push('\n');
    }
    out + LIMITS
}
