//! Intel's MPI benchmarks: what they are told, and the table that they print.

use super::trial::Reading;
use crate::error::BenchError;

/// What every benchmark is told, for so many ranks: all of them at once, and how often.
pub(super) fn arguments(ranks: u32) -> Vec<String> {
    let count = ranks.to_string();
    let words = ["-npmin", &count, "-iter", "15", "-iter_policy", "off", "-time", "60"];
    words.map(str::to_owned).to_vec()
}

/// The time of the slowest rank for one call, of the longest message.
pub(super) fn read(arguments: &[&str], said: &str) -> Result<Vec<Reading>, BenchError> {
    let name = arguments.first().copied().unwrap_or_default();
    let wrong = |what: &str| BenchError::Output(format!("IMB-MPI1 {name} {what}"));
    if !said.contains("# All processes entering MPI_Finalize") || said.contains("time-out") {
        return Err(wrong("did not come to its end"));
    }
    let mut lines =
        said.lines().skip_while(|line| !line.contains(&format!("# Benchmarking {name}")));
    let head = lines.find(|line| line.contains("t_max[usec]"));
    let head = head.ok_or_else(|| wrong("printed no table"))?;
    let column = head.split_whitespace().position(|word| word == "t_max[usec]").unwrap_or(0);
    let rows = lines.map_while(|line| {
        let cells: Option<Vec<f64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        cells.filter(|cells| cells.len() > column)
    });
    let slowest = rows.last().and_then(|cells| cells.get(column).copied());
    let slowest = slowest.filter(|time| *time > 0.0).ok_or_else(|| wrong("printed no time"))?;
    Ok(vec![Reading::seconds("", slowest / 1e6)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
#----------------------------------------------------------------
# Benchmarking Alltoall
# #processes = 8
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0           15         0.10         0.20         0.15
        65536           15     90000.00    100000.50     95000.00


# All processes entering MPI_Finalize
";

    #[test]
    fn the_slowest_rank_counts() {
        let found = read(&["Alltoall"], TABLE).unwrap();
        assert_eq!(found, [Reading::seconds("", 0.1000005)]);
        assert!(read(&["Bcast"], TABLE).unwrap_err().to_string().contains("IMB-MPI1 Bcast"));
        let cut = TABLE.replace("# All", "");
        assert!(read(&["Alltoall"], &cut).is_err());
    }
}
