! The attributes that tell about the whole job are the same on every rank, whatever its vendor has.
program job_attributes
   use mpi
   implicit none
   integer :: rank, ranks, ierror, old, dup
   integer(MPI_ADDRESS_KIND) :: value
   logical :: flag
   call MPI_Init(ierror)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
   call MPI_Comm_dup(MPI_COMM_WORLD, dup, ierror)

   call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
   call check(flag .and. value >= 32767, 'MPI_TAG_UB is missing')
   call check(alike(int(value)), 'MPI_TAG_UB differs')
   call MPI_Attr_get(dup, MPI_TAG_UB, old, flag, ierror)
   call check(flag .and. old == value, 'MPI_TAG_UB of a duplicate differs')

   call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, value, flag, ierror)
   call check(flag .and. value == ranks, 'MPI_UNIVERSE_SIZE is not the processes of the job')
   call MPI_Attr_get(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, old, flag, ierror)
   call check(flag .and. old == ranks, 'MPI_UNIVERSE_SIZE is not the processes of the job')

   call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, value, flag, ierror)
   call check(.not. flag .or. value == 0, 'MPI_WTIME_IS_GLOBAL is true')

   ! Greater tags than some vendor's are told to be wrong on no rank.
   call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
   call MPI_Sendrecv(rank, 1, MPI_INTEGER, mod(rank + 1, ranks), int(value), old, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), &
      int(value), MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
   call check(old == mod(rank + ranks - 1, ranks), 'the greatest tag does not arrive')
   call MPI_Comm_free(dup, ierror)
   call MPI_Barrier(MPI_COMM_WORLD, ierror)
   if (rank == 0) print '(A,I0,A)', 'ok job_attributes on ', ranks, ' ranks'
   call MPI_Finalize(ierror)
contains
   logical function alike(number)
      integer, intent(in) :: number
      integer :: least, most
      call MPI_Allreduce(number, least, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierror)
      call MPI_Allreduce(number, most, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierror)
      alike = least == most
   end function

   subroutine check(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (.not. holds) then
         print '(A,I0,A,A)', 'FAIL job_attributes: rank ', rank, ': ', what
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
      end if
   end subroutine
end program
