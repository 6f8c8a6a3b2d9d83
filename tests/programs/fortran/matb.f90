! The program that sets its node's rate, in Fortran (include/gridmpif.h): what it gets follows what it puts, and so does what
! crosses between clusters. It needs a job whose links carry 160 Mbit/s.
program matb
   use mpi
   implicit none
   include '../../../include/gridmpif.h'
   integer, parameter :: bytes = 400000, link = 20000
   integer :: rank, ranks, ierror, old, key
   integer(MPI_ADDRESS_KIND) :: value
   logical :: flag
   character, allocatable :: data(:)
   double precision :: took
   call MPI_Init(ierror)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
   allocate (data(bytes))
   data = 'x'
   call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, value, flag, ierror)
   call check(flag .and. value == link, 'YAMPI_PSP_MAXRATE is not the bandwidth of the link')
   took = crossing()
   value = link/10
   call MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, value, ierror)
   call MPI_Attr_get(MPI_COMM_WORLD, YAMPI_PSP_MATB, old, flag, ierror)
   call check(flag .and. old == link/10, 'YAMPI_PSP_MATB is not what was put')
   took = crossing()
   call check(rank /= 0 .or. took > (bytes - 100000)/(1000d0*(link/10)), 'it is faster than it was put')
   call MPI_Comm_delete_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, ierror)
   call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, value, flag, ierror)
   call check(flag .and. value /= link/10, 'YAMPI_PSP_MATB is still there')
   ! Keys of the program's own are the vendor's.
   call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND, ierror)
   call MPI_Comm_set_attr(MPI_COMM_WORLD, key, 7_MPI_ADDRESS_KIND, ierror)
   call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierror)
   call check(flag .and. value == 7, 'an attribute of the program is lost')
   call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierror)
   call MPI_Barrier(MPI_COMM_WORLD, ierror)
   if (rank == 0) print '(A,I0,A)', 'ok matb-fortran on ', ranks, ' ranks'
   call MPI_Finalize(ierror)
contains
   subroutine check(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (.not. holds) then
         print '(A,I0,A,A)', 'FAIL matb: rank ', rank, ': ', what
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
      end if
   end subroutine

   !> Seconds for the data from rank 0 to the last one, which answers.
   double precision function crossing()
      double precision :: from
      integer :: last
      last = ranks - 1
      from = MPI_Wtime()
      if (rank == 0) then
         call MPI_Send(data, bytes, MPI_CHARACTER, last, 1, MPI_COMM_WORLD, ierror)
         call MPI_Recv(data, 0, MPI_CHARACTER, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
      else if (rank == last) then
         call MPI_Recv(data, bytes, MPI_CHARACTER, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
         call MPI_Send(data, 0, MPI_CHARACTER, 0, 2, MPI_COMM_WORLD, ierror)
      end if
      crossing = MPI_Wtime() - from
   end function
end program
