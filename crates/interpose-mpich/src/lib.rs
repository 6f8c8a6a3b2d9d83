//! The preloaded library for vendors of the ABI `mpich`: exported symbols, generated from `api/`, and nothing else.
gridmpi_interpose::symbols!(gridmpi_abi::Mpich);
