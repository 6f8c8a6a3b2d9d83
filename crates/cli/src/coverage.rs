//! `gridmpi coverage`.

use crate::output::{complain, print};

/// Written by `apigen` from the same table that the library's symbols are generated from.
const TABLE: &str = include_str!("../../../docs/coverage.md");

const LONG: &str = "\
Print what becomes of each MPI procedure across clusters: served, passed to the cluster's own MPI, or
refused with MPI_ERR_UNSUPPORTED_OPERATION. On a communicator that lies in one cluster everything is
that cluster's MPI's own.";

/// Print which MPI procedures work across clusters
#[derive(clap::Args)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// Show only procedures whose names contain one of these, in any case
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(args: &Args) -> i32 {
    let text = if args.names.is_empty() { TABLE.to_owned() } else { filter(TABLE, &args.names) };
    if text.is_empty() {
        complain(format!("no procedure of MPI is named like {}", args.names.join(", ")));
        return 1;
    }
    i32::from(!print(&text))
}

/// Rows that name a wanted procedure, each under the heading of its section.
fn filter(table: &str, names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| name.to_lowercase()).collect();
    let mut heading = None;
    let mut text = String::new();
    for line in table.lines() {
        if line.starts_with("## ") {
            heading = Some(line);
        }
        let procedure = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
        let procedure = procedure.map(str::to_lowercase);
        if procedure.is_some_and(|procedure| names.iter().any(|name| procedure.contains(name))) {
            if let Some(heading) = heading.take() {
                text.push_str(heading.split(':').next().unwrap_or(heading));
                text.push('\n');
            }
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_under_their_heading() {
        let found = filter(TABLE, &["mpi_allreduce".to_owned()]);
        assert!(found.starts_with("## ") && found.contains("| `MPI_Allreduce` |"), "{found}");
        assert!(filter(TABLE, &["MPI_Nonsense".to_owned()]).is_empty());
    }
}
