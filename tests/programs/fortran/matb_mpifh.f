C     The attributes of include/gridmpif.h by mpif.h, in fixed form: what
C     is got follows what is put, by the old procedures as by the new.
C     It needs a job whose links carry 160 Mbit/s.
      program matb
      implicit none
      include 'mpif.h'
      include '../../../include/gridmpif.h'
      integer rank, ranks, ierr, old
      integer(kind=MPI_ADDRESS_KIND) value
      logical flag
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, value,
     &   flag, ierr)
      call check(flag .and. value .eq. 20000, 'MAXRATE', rank)
      value = 2000
      call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, YAMPI_PSP_MATB, value,
     &   ierr)
      call MPI_ATTR_GET(MPI_COMM_WORLD, YAMPI_PSP_MATB, old, flag, ierr)
      call check(flag .and. old .eq. 2000, 'put', rank)
      old = 3000
      call MPI_ATTR_PUT(MPI_COMM_WORLD, YAMPI_PSP_MATB, old, ierr)
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, YAMPI_PSP_MATB, value,
     &   flag, ierr)
      call check(flag .and. value .eq. 3000, 'put as of old', rank)
      call MPI_COMM_DELETE_ATTR(MPI_COMM_WORLD, YAMPI_PSP_MATB, ierr)
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, YAMPI_PSP_MATB, value,
     &   flag, ierr)
      call check(flag .and. value .ne. 3000, 'deleted', rank)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_FINALIZE(ierr)
      if (rank .eq. 0) print '(A,I0,A)', 'ok matb-mpifh on ', ranks,
     &   ' ranks'
      end

C     The job ends here if the value is not what it should be.
      subroutine check(holds, what, rank)
      implicit none
      include 'mpif.h'
      logical holds
      character*(*) what
      integer rank, ierr
      if (.not. holds) then
         print '(A,I0,A,A)', 'FAIL matb-mpifh: rank ', rank, ': ', what
         call flush(6)
         call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
      end if
      end
