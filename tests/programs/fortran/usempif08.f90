! The `use mpi_f08` binding: typed handles, optional ierror, status components, callbacks, large arrays.
module checks
   use mpi_f08
   implicit none
   integer :: rank, ranks, next, previous, deletions = 0
contains
   !> The job ends here if two integers differ.
   subroutine same(what, got, want)
      character(*), intent(in) :: what
      integer, intent(in) :: got, want
      if (got /= want) then
         print '(A,I0,A,A,A,I0,A,I0)', 'FAIL usempif08: rank ', rank, ': ', what, ': ', got, ', not ', want
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1)
      end if
   end subroutine

   subroutine deleted(comm, keyval, value, extra, ierror)
      type(MPI_Comm) :: comm
      integer :: keyval, ierror
      integer(MPI_ADDRESS_KIND) :: value, extra
      deletions = deletions + 1
      ierror = MPI_SUCCESS
   end subroutine
end module

program usempif08
   use checks
   implicit none
   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   next = mod(rank + 1, ranks)
   previous = mod(rank + ranks - 1, ranks)
   call wild()
   call requests()
   call collectives()
   call types()
   call comms()
   call attributes()
   call grid()
   call errors()
   call MPI_Barrier(MPI_COMM_WORLD)
   call MPI_Finalize()
   if (rank == 0) print '(A,I0,A)', 'ok usempif08 on ', ranks, ' ranks'
contains
   subroutine wild()
      type(MPI_Status) :: status
      type(MPI_Message) :: message
      integer :: values(300), i, n
      if (rank == 0) then
         do i = 1, ranks - 1
            call MPI_Recv(values, 300, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status)
            call MPI_Get_count(status, MPI_INTEGER, n)
            call same('count', n, status%MPI_SOURCE)
            call same('tag', status%MPI_TAG, status%MPI_SOURCE + 7)
            call same('value', values(n), status%MPI_SOURCE*3)
         end do
         call MPI_Barrier(MPI_COMM_WORLD)   ! the wild receives above must not take what follows
         do i = 1, ranks - 1
            call MPI_Mprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, message, status)
            call MPI_Mrecv(values, 300, MPI_INTEGER, message, status)
            call same('matched', values(1), status%MPI_SOURCE)
         end do
      else
         values = rank*3
         call MPI_Send(values, rank, MPI_INTEGER, 0, rank + 7, MPI_COMM_WORLD)
         call MPI_Barrier(MPI_COMM_WORLD)
         values = rank
         call MPI_Ssend(values, 300, MPI_INTEGER, 0, 2, MPI_COMM_WORLD)
      end if
      call MPI_Recv(values, 300, MPI_INTEGER, MPI_PROC_NULL, 1, MPI_COMM_WORLD, status)
      call same('nobody', status%MPI_SOURCE, MPI_PROC_NULL)
   end subroutine

   subroutine requests()
      type(MPI_Request) :: request(2*ranks)
      type(MPI_Status) :: statuses(2*ranks)
      integer, asynchronous :: in(0:ranks - 1), out(0:ranks - 1)   ! changed while requests are pending
      integer :: peer, index, done, outcount, indices(2*ranks)
      do peer = 0, ranks - 1
         out(peer) = 100*rank + peer
         call MPI_Irecv(in(peer), 1, MPI_INTEGER, peer, 5, MPI_COMM_WORLD, request(1 + peer))
         call MPI_Isend(out(peer), 1, MPI_INTEGER, peer, 5, MPI_COMM_WORLD, request(1 + ranks + peer))
      end do
      call MPI_Waitall(2*ranks, request, statuses)
      do peer = 0, ranks - 1
         call same('value', in(peer), 100*peer + rank)
         call same('source', statuses(1 + peer)%MPI_SOURCE, peer)
      end do
      call MPI_Recv_init(in, 1, MPI_INTEGER, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, request(1))
      call MPI_Send_init(out, 1, MPI_INTEGER, next, 6, MPI_COMM_WORLD, request(2))
      out(0) = rank
      call MPI_Startall(2, request)
      done = 0
      do while (done < 2)
         call MPI_Waitsome(2, request, outcount, indices, statuses)
         done = done + outcount
      end do
      call same('persistent', in(0), previous)
      call MPI_Request_free(request(1))
      call MPI_Request_free(request(2))
      if (request(1) /= MPI_REQUEST_NULL) call same('freed', 0, 1)
      call MPI_Waitany(2, request, index, statuses(1))
      call same('nothing to wait for', index, MPI_UNDEFINED)
   end subroutine

   subroutine collectives()
      integer :: value, all(ranks), counts(ranks), places(ranks), r, ragged(ranks*(ranks + 1)/2), mine(ranks)
      double precision :: x, total
      do r = 0, ranks - 1
         value = merge(r*11, -1, rank == r)
         call MPI_Bcast(value, 1, MPI_INTEGER, r, MPI_COMM_WORLD)
         call same('bcast', value, r*11)
      end do
      call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD)
      call same('allgather', all(ranks), ranks - 1)
      x = rank + 0.5d0
      call MPI_Allreduce(x, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
      call same('allreduce', nint(2*total), ranks*ranks)
      do r = 1, ranks
         counts(r) = r
         places(r) = r*(r - 1)/2
      end do
      mine = rank
      call MPI_Allgatherv(mine, rank + 1, MPI_INTEGER, ragged, counts, places, MPI_INTEGER, MPI_COMM_WORLD)
      do r = 1, ranks
         call same('allgatherv', ragged(places(r) + r), r - 1)
      end do
      all = [(100*rank + r, r=0, ranks - 1)]
      call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD)
      do r = 0, ranks - 1
         call same('alltoall in place', all(r + 1), 100*r + rank)
      end do
      call MPI_Barrier(MPI_COMM_WORLD)
   end subroutine

   subroutine types()
      type(MPI_Datatype) :: row, part
      type(MPI_Status) :: status
      integer :: a(6, 4), b(4), c(2, 3), i, j, elements
      do j = 1, 4
         do i = 1, 6
            a(i, j) = 1000*rank + 10*i + j
         end do
      end do
      call MPI_Type_vector(4, 1, 6, MPI_INTEGER, row)
      call MPI_Type_commit(row)
      call MPI_Sendrecv(a(2, 1), 1, row, next, 1, b, 4, MPI_INTEGER, previous, 1, MPI_COMM_WORLD, status)
      call same('row', b(4), 1000*previous + 24)
      call MPI_Get_elements(status, MPI_INTEGER, elements)
      call same('elements', elements, 4)
      call MPI_Type_create_subarray(2, [6, 4], [2, 3], [3, 1], MPI_ORDER_FORTRAN, MPI_INTEGER, part)
      call MPI_Type_commit(part)
      call MPI_Sendrecv(a, 1, part, next, 2, c, 6, MPI_INTEGER, previous, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
      call same('corner', c(1, 1), 1000*previous + 42)
      call same('other corner', c(2, 3), 1000*previous + 54)
      call MPI_Type_free(row)
      call MPI_Type_free(part)
   end subroutine

   subroutine comms()
      type(MPI_Comm) :: half, dup
      type(MPI_Group) :: group, world
      integer :: me, n, result, translated(1)
      character(MPI_MAX_OBJECT_NAME) :: name
      call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half)
      call MPI_Comm_size(half, n)
      call MPI_Comm_rank(half, me)
      call same('size', n, (ranks + 1 - mod(rank, 2))/2)
      call MPI_Comm_group(half, group)
      call MPI_Comm_group(MPI_COMM_WORLD, world)
      call MPI_Group_translate_ranks(group, 1, [me], world, translated)
      call same('translated', translated(1), rank)
      call MPI_Group_free(group)
      call MPI_Group_free(world)
      call MPI_Comm_dup(half, dup)
      call MPI_Comm_compare(half, dup, result)
      call same('congruent', result, MPI_CONGRUENT)
      call MPI_Comm_set_name(dup, 'a copy')
      call MPI_Comm_get_name(dup, name, n)
      if (name(1:n) /= 'a copy') call same('name', 0, 1)
      call MPI_Comm_free(dup)
      call MPI_Comm_free(half)
      if (half /= MPI_COMM_NULL) call same('freed', 0, 1)
   end subroutine

   subroutine attributes()
      integer :: keyval
      integer(MPI_ADDRESS_KIND) :: value
      type(MPI_Comm) :: dup
      logical :: found
      call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, deleted, keyval, 0_MPI_ADDRESS_KIND)
      call MPI_Comm_dup(MPI_COMM_WORLD, dup)
      call MPI_Comm_set_attr(dup, keyval, 77_MPI_ADDRESS_KIND)
      call MPI_Comm_get_attr(dup, keyval, value, found)
      if (.not. found) call same('found', 0, 1)
      call same('value', int(value), 77)
      call MPI_Comm_free(dup)
      call same('deletions', deletions, 1)
      call MPI_Comm_free_keyval(keyval)
   end subroutine

   subroutine grid()
      type(MPI_Comm) :: cart
      integer :: dims(1), source, dest, halo
      dims = ranks
      call MPI_Cart_create(MPI_COMM_WORLD, 1, dims, [.true.], .false., cart)
      call MPI_Cart_shift(cart, 0, 1, source, dest)
      call same('dest', dest, next)
      call MPI_Sendrecv(rank, 1, MPI_INTEGER, dest, 1, halo, 1, MPI_INTEGER, source, 1, cart, MPI_STATUS_IGNORE)
      call same('halo', halo, previous)
      call MPI_Comm_free(cart)
   end subroutine

   subroutine errors()
      integer :: code, class
      call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
      call MPI_Send(rank, 1, MPI_INTEGER, ranks + 9, 0, MPI_COMM_WORLD, code)
      call MPI_Error_class(code, class)
      call same('error class', class, MPI_ERR_RANK)
   end subroutine
end program
