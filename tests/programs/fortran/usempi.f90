! The `use mpi` module binding: point-to-point with wild receives, requests, collectives, derived types,
! communicators, attributes with callbacks, graphs and error handlers.
module checks
   use mpi
   implicit none
   integer :: rank, ranks, next, previous, deletions = 0
   ! Here, and not in the procedure that uses them, since MPI_BOTTOM changes them unseen by the compiler.
   integer :: numbers(3)
   double precision :: reals(2)
contains
   !> The job ends here if two integers differ.
   subroutine same(what, got, want)
      character(*), intent(in) :: what
      integer, intent(in) :: got, want
      integer :: ierr
      if (got /= want) then
         print '(A,I0,A,A,A,I0,A,I0)', 'FAIL usempi: rank ', rank, ': ', what, ': ', got, ', not ', want
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      end if
   end subroutine

   subroutine copied(comm, keyval, extra, value_in, value_out, flag, ierr)
      integer :: comm, keyval, ierr
      integer(MPI_ADDRESS_KIND) :: extra, value_in, value_out
      logical :: flag
      value_out = value_in + 1
      flag = .true.
      ierr = MPI_SUCCESS
   end subroutine

   subroutine deleted(comm, keyval, value, extra, ierr)
      integer :: comm, keyval, ierr, n
      integer(MPI_ADDRESS_KIND) :: value, extra
      call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)   ! a callback may call MPI
      call same('size in a callback', n, ranks)
      deletions = deletions + 1
      ierr = MPI_SUCCESS
   end subroutine

   subroutine affine(left, right, n, type)   ! not commutative: the order of the ranks matters
      integer :: n, type, left(2, n), right(2, n), i, a, b
      do i = 1, n
         a = mod(right(1, i)*left(1, i), 9973)
         b = mod(right(1, i)*left(2, i) + right(2, i), 9973)
         right(1, i) = a
         right(2, i) = b
      end do
   end subroutine
end module

program usempi
   use checks
   implicit none
   integer :: ierr, provided
   call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
   next = mod(rank + 1, ranks)
   previous = mod(rank + ranks - 1, ranks)
   call wild()
   call matched()
   call reductions()
   call structures()
   call attributes()
   call graphs()
   call MPI_Barrier(MPI_COMM_WORLD, ierr)
   call MPI_Finalize(ierr)
   if (rank == 0) print '(A,I0,A)', 'ok usempi on ', ranks, ' ranks'
contains
   subroutine wild()
      integer :: request(2), statuses(MPI_STATUS_SIZE, 2), status(MPI_STATUS_SIZE), value(2), i, n, from
      logical :: flag
      do i = 1, 20
         call MPI_Irecv(value(1), 1, MPI_INTEGER, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, request(1), ierr)
         value(2) = 100*rank + i
         call MPI_Isend(value(2), 1, MPI_INTEGER, next, i, MPI_COMM_WORLD, request(2), ierr)
         call MPI_Waitall(2, request, statuses, ierr)
         call same('wild source', statuses(MPI_SOURCE, 1), previous)
         call same('wild value', value(1), 100*previous + i)
      end do
      if (rank == 0) then
         do i = 1, 2*(ranks - 1)
            call MPI_Recv(value, 2, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
            call MPI_Get_count(status, MPI_INTEGER, n, ierr)
            from = status(MPI_SOURCE)
            call same('count', n, status(MPI_TAG))
            call same('value', value(1), from*10)
         end do
      else
         value = rank*10
         call MPI_Send(value, 1, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, ierr)
         call MPI_Rsend(value, 2, MPI_INTEGER, MPI_PROC_NULL, 2, MPI_COMM_WORLD, ierr)
         call MPI_Ssend(value, 2, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, ierr)
      end if
      call MPI_Barrier(MPI_COMM_WORLD, ierr)   ! whoever goes on must not be taken by rank 0's wild receives
      call MPI_Irecv(value, 1, MPI_INTEGER, previous, 99, MPI_COMM_WORLD, request(1), ierr)
      call MPI_Cancel(request(1), ierr)
      call MPI_Wait(request(1), status, ierr)
      call MPI_Test_cancelled(status, flag, ierr)
      if (.not. flag) call same('cancelled', 0, 1)
   end subroutine

   subroutine matched()
      integer :: message, status(MPI_STATUS_SIZE), n, out(5), in(5), request
      logical :: flag
      out = rank
      call MPI_Isend(out, 5, MPI_INTEGER, next, 4, MPI_COMM_WORLD, request, ierr)
      call MPI_Mprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, message, status, ierr)
      call MPI_Get_count(status, MPI_INTEGER, n, ierr)
      call same('matched count', n, 5)
      call MPI_Mrecv(in, 5, MPI_INTEGER, message, status, ierr)
      call same('matched value', in(5), previous)
      call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      call MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, flag, message, status, ierr)
      if (flag) call same('left over', 1, 0)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
   end subroutine

   subroutine reductions()
      integer :: op, pair(2), all(2), want(2), r, type
      double precision :: x(3), y(3)
      real :: loc(2), best(2)
      complex :: z, zs
      logical :: l, ls
      call MPI_Op_create(affine, .false., op, ierr)
      call MPI_Type_contiguous(2, MPI_INTEGER, type, ierr)
      call MPI_Type_commit(type, ierr)
      pair = [rank + 2, 3*rank + 1]
      call MPI_Allreduce(pair, all, 1, type, op, MPI_COMM_WORLD, ierr)
      want = [1, 0]
      do r = 0, ranks - 1
         want = [mod((r + 2)*want(1), 9973), mod((r + 2)*want(2) + 3*r + 1, 9973)]
      end do
      call same('composition a', all(1), want(1))
      call same('composition b', all(2), want(2))
      call MPI_Type_free(type, ierr)
      call MPI_Op_free(op, ierr)
      x = rank
      y = x
      call MPI_Scan(x, y, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
      call same('scan', nint(y(3)), rank*(rank + 1)/2)
      loc = [real(mod(rank*3, ranks)), real(rank)]
      call MPI_Allreduce(loc, best, 1, MPI_2REAL, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
      call same('maxloc', mod(nint(best(2))*3, ranks), nint(best(1)))
      z = cmplx(rank, -rank)
      call MPI_Allreduce(z, zs, 1, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
      call same('complex', nint(aimag(zs)), -ranks*(ranks - 1)/2)
      l = rank /= 1
      call MPI_Allreduce(l, ls, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
      if (ls) call same('logical', 1, 0)
   end subroutine

   subroutine structures()
      integer :: type, status(MPI_STATUS_SIZE)
      integer(MPI_ADDRESS_KIND) :: places(2)
      character(6) :: text, got
      call MPI_Get_address(numbers, places(1), ierr)
      call MPI_Get_address(reals, places(2), ierr)
      call MPI_Type_create_struct(2, [3, 2], places, [MPI_INTEGER, MPI_DOUBLE_PRECISION], type, ierr)
      call MPI_Type_commit(type, ierr)
      numbers = rank + [1, 2, 3]
      reals = rank/2d0
      call MPI_Sendrecv_replace(MPI_BOTTOM, 1, type, next, 1, previous, 1, MPI_COMM_WORLD, status, ierr)
      call same('number', numbers(3), previous + 3)
      call same('real', nint(2*reals(2)), previous)
      call MPI_Type_free(type, ierr)
      text = 'héllo'
      call MPI_Sendrecv(text, 6, MPI_CHARACTER, next, 2, got, 6, MPI_CHARACTER, previous, 2, MPI_COMM_WORLD, status, ierr)
      if (got /= text) call same('text', 0, 1)
   end subroutine

   subroutine attributes()
      integer :: keyval, dup
      integer(MPI_ADDRESS_KIND) :: value
      logical :: found
      call MPI_Comm_create_keyval(copied, deleted, keyval, 0_MPI_ADDRESS_KIND, ierr)
      call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, 41_MPI_ADDRESS_KIND, ierr)
      call MPI_Comm_dup(MPI_COMM_WORLD, dup, ierr)
      call MPI_Comm_get_attr(dup, keyval, value, found, ierr)
      if (.not. found) call same('found', 0, 1)
      call same('copied', int(value), 42)
      call MPI_Comm_free(dup, ierr)
      call same('deletions', deletions, 1)
      call MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval, ierr)
      call same('deletions', deletions, 2)
      call MPI_Comm_free_keyval(keyval, ierr)
   end subroutine

   subroutine graphs()
      integer :: comm, sources(1), destinations(1), in, out, halo
      logical :: weighted
      sources = previous
      destinations = next
      call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources, MPI_UNWEIGHTED, 1, destinations, MPI_UNWEIGHTED, &
         MPI_INFO_NULL, .false., comm, ierr)
      call MPI_Dist_graph_neighbors_count(comm, in, out, weighted, ierr)
      call same('in', in, 1)
      call same('out', out, 1)
      call MPI_Sendrecv(rank, 1, MPI_INTEGER, next, 1, halo, 1, MPI_INTEGER, previous, 1, comm, MPI_STATUS_IGNORE, ierr)
      call same('halo', halo, previous)
      call MPI_Comm_free(comm, ierr)
   end subroutine
end program
