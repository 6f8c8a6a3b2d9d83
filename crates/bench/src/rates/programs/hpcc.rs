//! HPC Challenge: its FFT and its transposition, the parts that move most between clusters.

use super::trial::Reading;
use crate::error::BenchError;

/// The FFT is the later of the two. What comes behind measures other things for a minute.
pub(super) const ENOUGH: &str = "End of MPIFFT section.";

/// A small matrix for all parts (the grid is of 4 + 4 ranks), and a larger one to be transposed.
pub(super) const INPUT: &str = "\
HPLinpack benchmark input file
gridmpi bench
HPL.out      output file name
8            device out
1            # of problem sizes
800          Ns
1            # of NBs
80           NBs
0            PMAP
1            # of process grids
4            Ps
2            Qs
16.0         threshold
1            # of panel fact
2            PFACTs
1            # of recursive stopping criterium
4            NBMINs
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs
1            # of broadcast
1            BCASTs
1            # of lookahead depth
1            DEPTHs
2            SWAP
64           swapping threshold
0            L1
0            U
1            Equilibration
8            memory alignment
##### ignored #####
1            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
";

/// Most that the FFT there and back may be off.
const MOST_OFF: f64 = 1e-10;

/// Both, in seconds, if it found them right itself.
pub(super) fn read(_arguments: &[&str], written: &str) -> Result<Vec<Reading>, BenchError> {
    let transposition = transposition(section(written, "PTRANS")?)?;
    let transform = transform(section(written, "MPIFFT")?)?;
    Ok(vec![Reading::seconds("PTRANS", transposition), Reading::seconds("FFT", transform)])
}

fn wrong(what: &str) -> BenchError {
    BenchError::Output(format!("hpcc: {what}"))
}

fn section<'a>(written: &'a str, name: &str) -> Result<&'a str, BenchError> {
    let (begin, end) = (format!("Begin of {name} section."), format!("End of {name} section."));
    let found = written.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    found.map(|(part, _)| part).ok_or_else(|| wrong(&format!("its part {name} did not end")))
}

/// All transpositions: lines `WALL M N MB NB P Q TIME CHECK GB/s RESID`.
fn transposition(part: &str) -> Result<f64, BenchError> {
    if part.contains("FAILED") || !part.contains(" PASSED") {
        return Err(wrong("PTRANS: its residual check failed"));
    }
    let walls = part.lines().filter(|line| line.starts_with("WALL"));
    let times = walls.map(|line| line.split_whitespace().nth(7)?.parse::<f64>().ok());
    let sum = times.sum::<Option<f64>>().filter(|sum| *sum > 0.0);
    sum.ok_or_else(|| wrong("PTRANS: no times"))
}

/// There and back.
fn transform(part: &str) -> Result<f64, BenchError> {
    let value = |key: &str| {
        let found = part.lines().find_map(|line| line.strip_prefix(key));
        let number = found.and_then(|text| text.trim().parse::<f64>().ok());
        number.ok_or_else(|| wrong(&format!("FFT: it did not say `{key}`")))
    };
    let off = value("max(|x-x0|):")?;
    // Not a number is not small either.
    if off.is_nan() || off > MOST_OFF {
        return Err(wrong(&format!("FFT: off by {off}")));
    }
    Ok(value("Computing:")? + value("Inverse FFT:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "\
Begin of PTRANS section.
TIME   M     N    MB  NB  P   Q     TIME   CHECK   GB/s   RESID
WALL   400   400  80  80   4   2     0.15 PASSED    0.008  0.00
CPU    400   400  80  80   4   2     0.00 PASSED    0.759  0.00
WALL   400   400  80  80   4   2     0.10 PASSED    0.008  0.00
End of PTRANS section.
Begin of MPIFFT section.
Computing:     0.131
Inverse FFT:     0.171
max(|x-x0|): 1.299e-15
End of MPIFFT section.
";

    #[test]
    fn both_parts_are_read() {
        let found = read(&[], WRITTEN).unwrap();
        assert!((found[0].value - 0.25).abs() < 1e-9 && (found[1].value - 0.302).abs() < 1e-9);
        assert!(WRITTEN.contains(ENOUGH));
    }

    #[test]
    fn its_own_verdict_counts() {
        let error = |text: String| read(&[], &text).unwrap_err().to_string();
        assert!(error(WRITTEN.replacen("PASSED", "FAILED", 1)).contains("residual"));
        assert!(error(WRITTEN.replace("1.299e-15", "2.5")).contains("off by 2.5"));
        assert!(error(WRITTEN.replace("End of MPIFFT", "")).contains("MPIFFT did not end"));
    }
}
