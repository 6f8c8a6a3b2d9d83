! GridMPI: what a program may ask of it beyond the MPI standard; see gridmpi.h. For `include` in fixed and free form.
      integer YAMPI_PSP_MAXRATE, YAMPI_PSP_MATB
      parameter (YAMPI_PSP_MAXRATE=1347637249)
      parameter (YAMPI_PSP_MATB=1347637250)
