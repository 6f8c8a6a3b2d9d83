//! A program runs under its vendor with our library below it as it runs without.

mod common;

use common::VENDORS;
use std::process::Output;

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int provided, rank, size, sum = 0, one = 1, in = -1, members;
    MPI_Comm dup, half;
    MPI_Group group;
    MPI_Request requests[2];
    MPI_Status statuses[2];

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_split(dup, rank % 2, 0, &half);
    MPI_Comm_group(half, &group);
    MPI_Group_size(group, &members);
    MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 7, dup, &requests[0]);
    MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % size, 7, dup, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    MPI_Ibarrier(dup, &requests[0]); /* refused across clusters, the vendor's here */
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Group_free(&group);
    MPI_Comm_free(&half);
    MPI_Comm_free(&dup);
    MPI_Finalize();
    if (rank == 0)
        printf("size %d sum %d from %d members %d\n", size, sum, statuses[0].MPI_SOURCE, members);
    return in == statuses[0].MPI_SOURCE ? 0 : 1;
}
"#;

fn report(run: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr))
}

#[test]
fn programs_run_unchanged() {
    let scratch = common::scratch("inert");
    for vendor in &VENDORS {
        let program = vendor.build(&scratch, PROGRAM);
        let (alone, preloaded) =
            (vendor.run(&program, None), vendor.run(&program, Some(&common::library(vendor.abi))));
        for run in [alone, preloaded] {
            assert!(run.status.success(), "{}: {}", vendor.tag, report(&run));
            assert_eq!(
                String::from_utf8_lossy(&run.stdout).trim(),
                "size 2 sum 2 from 1 members 1",
                "{}",
                vendor.tag
            );
        }
    }
}

#[test]
fn the_wrong_library_says_so() {
    let scratch = common::scratch("wrong-family");
    for (vendor, other) in [(&VENDORS[0], "openmpi"), (&VENDORS[3], "mpich")] {
        let program = vendor.build(&scratch, PROGRAM);
        let run = std::process::Command::new(program)
            .env("LD_PRELOAD", common::library(other))
            .output()
            .unwrap();
        assert!(!run.status.success());
        let said = report(&run);
        assert!(said.contains("another MPI family") && said.contains("launcher"), "{said}");
    }
}
