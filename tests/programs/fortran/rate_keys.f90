! The keys of include/gridmpif.h in a job of any number of clusters, of whose links nothing is known: they are found or not, and
! nobody ends by asking. `rate_keys fatal`: rank 0 puts what can only be read, and ends the program as it would in C.
program rate_keys
   use mpi
   implicit none
   include '../../../include/gridmpif.h'
   integer, parameter :: rate = 5000
   integer :: rank, ranks, ierror
   integer(MPI_ADDRESS_KIND) :: value
   logical :: flag
   character(5) :: word
   call get_command_argument(1, word)
   call MPI_Init(ierror)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
   call put_and_delete(MPI_COMM_WORLD)
   call put_and_delete(MPI_COMM_SELF)
   value = rate
   if (word == 'fatal' .and. rank == 0) call MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, value, ierror)
   call check(word /= 'fatal' .or. rank /= 0, 'YAMPI_PSP_MAXRATE can be put')
   if (word == 'fatal') call MPI_Barrier(MPI_COMM_WORLD, ierror)
   call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierror)
   call MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, value, ierror)
   call check(ierror /= MPI_SUCCESS, 'YAMPI_PSP_MAXRATE can be put')
   call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierror)
   call MPI_Barrier(MPI_COMM_WORLD, ierror)
   if (rank == 0) print '(A,I0,A)', 'ok rate_keys-fortran on ', ranks, ' ranks'
   call MPI_Finalize(ierror)
contains
   subroutine put_and_delete(comm)
      integer, intent(in) :: comm
      call MPI_Comm_get_attr(comm, YAMPI_PSP_MAXRATE, value, flag, ierror)
      call check(ierror == MPI_SUCCESS .and. .not. flag, 'YAMPI_PSP_MAXRATE is known')
      value = rate
      call MPI_Comm_set_attr(comm, YAMPI_PSP_MATB, value, ierror)
      call check(ierror == MPI_SUCCESS, 'YAMPI_PSP_MATB cannot be put')
      call MPI_Comm_delete_attr(comm, YAMPI_PSP_MATB, ierror)
      call check(ierror == MPI_SUCCESS, 'YAMPI_PSP_MATB cannot be deleted')
      call MPI_Comm_get_attr(comm, YAMPI_PSP_MATB, value, flag, ierror)
      call check(ierror == MPI_SUCCESS .and. .not. flag, 'YAMPI_PSP_MATB is known')
   end subroutine

   subroutine check(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (.not. holds) then
         print '(A,I0,A,A)', 'FAIL rate_keys: rank ', rank, ': ', what
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
      end if
   end subroutine
end program
