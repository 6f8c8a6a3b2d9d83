C     The mpif.h binding, fixed form: point-to-point with wild receives,
C     collectives, derived types, splits, attributes, status fields,
C     Cartesian grids and error handlers.
      program mpifh
      implicit none
      include 'mpif.h'
      integer ierr, rank, ranks
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
      call pt2pt(rank, ranks)
      call requests(rank, ranks)
      call collectives(rank, ranks)
      call types(rank, ranks)
      call comms(rank, ranks)
      call attributes()
      call carts(rank, ranks)
      call errors(ranks)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_FINALIZE(ierr)
      if (rank .eq. 0) print '(A,I0,A)', 'ok mpifh on ', ranks, ' ranks'
      end

C     The job ends here if two integers differ.
      subroutine same(what, got, want)
      implicit none
      include 'mpif.h'
      character*(*) what
      integer got, want, ierr
      if (got .ne. want) then
         print '(A,A,A,I0,A,I0)', 'FAIL mpifh: ', what, ': ', got,
     &      ', not ', want
         call flush(6)
         call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
      end if
      end

      subroutine pt2pt(rank, ranks)
      implicit none
      include 'mpif.h'
      integer rank, ranks, next, previous, ierr, i, n
      integer status(MPI_STATUS_SIZE), token, values(1000)
      double precision reals(50)
      logical flag
      next = mod(rank + 1, ranks)
      previous = mod(rank + ranks - 1, ranks)
      token = 100 * rank
      call MPI_SENDRECV_REPLACE(token, 1, MPI_INTEGER, next, 7,
     &   previous, 7, MPI_COMM_WORLD, status, ierr)
      call same('token', token, 100 * previous)
      call same('source', status(MPI_SOURCE), previous)
      call same('tag', status(MPI_TAG), 7)
      if (rank .eq. 0) then
         do i = 1, ranks - 1
            call MPI_RECV(values, 1000, MPI_INTEGER, MPI_ANY_SOURCE,
     &         MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
            call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
            call same('count', n, 10 * status(MPI_SOURCE))
            call same('tag', status(MPI_TAG), status(MPI_SOURCE) + 20)
            call same('value', values(n), status(MPI_SOURCE))
         end do
      else
         do i = 1, 1000
            values(i) = rank
         end do
         call MPI_SEND(values, 10 * rank, MPI_INTEGER, 0, rank + 20,
     &      MPI_COMM_WORLD, ierr)
      end if
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      do i = 1, 50
         reals(i) = rank + i / 4.0d0
      end do
      if (rank .eq. ranks - 1) then
         call MPI_SSEND(reals, 50, MPI_DOUBLE_PRECISION, 0, 3,
     &      MPI_COMM_WORLD, ierr)
      else if (rank .eq. 0) then
         call MPI_PROBE(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, status, ierr)
         call MPI_GET_COUNT(status, MPI_DOUBLE_PRECISION, n, ierr)
         call same('probed count', n, 50)
         call MPI_RECV(reals, 50, MPI_DOUBLE_PRECISION,
     &      status(MPI_SOURCE), 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE,
     &      ierr)
         call same('real', nint(4 * reals(3)), 4 * (ranks - 1) + 3)
      end if
      call MPI_SEND(token, 1, MPI_INTEGER, MPI_PROC_NULL, 0,
     &   MPI_COMM_WORLD, ierr)
      call MPI_RECV(token, 1, MPI_INTEGER, MPI_PROC_NULL, 0,
     &   MPI_COMM_WORLD, status, ierr)
      call same('nobody', status(MPI_SOURCE), MPI_PROC_NULL)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_IPROBE(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
     &   flag, status, ierr)
      if (flag) call same('left over', 1, 0)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      end

      subroutine requests(rank, ranks)
      implicit none
      include 'mpif.h'
      integer rank, ranks, ierr, peer, k, n, m, index
      integer in(0:63), out(0:63), req(128), indices(128)
C     In a common block, since they change while requests are pending.
      common /buffers/ in, out
      integer statuses(MPI_STATUS_SIZE, 128)
      logical flag
      do m = 1, 4
         k = 0
         do peer = 0, ranks - 1
            k = k + 1
            call MPI_IRECV(in(peer), 1, MPI_INTEGER, peer, m,
     &         MPI_COMM_WORLD, req(k), ierr)
         end do
         do peer = 0, ranks - 1
            k = k + 1
            out(peer) = 1000 * m + 10 * rank + peer
            call MPI_ISEND(out(peer), 1, MPI_INTEGER, peer, m,
     &         MPI_COMM_WORLD, req(k), ierr)
         end do
         if (m .eq. 1) then
            call MPI_WAITALL(k, req, statuses, ierr)
            do peer = 0, ranks - 1
               call same('waitall source',
     &            statuses(MPI_SOURCE, peer + 1), peer)
            end do
         else if (m .eq. 2) then
            do n = 1, k
               call MPI_WAITANY(k, req, index, statuses, ierr)
               if (index .lt. 1 .or. index .gt. k)
     &            call same('index', index, 1)
            end do
         else if (m .eq. 3) then
            n = 0
            do while (n .lt. k)
               call MPI_WAITSOME(k, req, index, indices, statuses, ierr)
               n = n + index
            end do
         else
            flag = .false.
            do while (.not. flag)
               call MPI_TESTALL(k, req, flag, statuses, ierr)
            end do
         end if
         do peer = 0, ranks - 1
            call same('value', in(peer), 1000 * m + 10 * peer + rank)
         end do
      end do
      call MPI_RECV_INIT(in(0), 1, MPI_INTEGER, MPI_ANY_SOURCE, 9,
     &   MPI_COMM_WORLD, req(1), ierr)
      call MPI_SEND_INIT(out(0), 1, MPI_INTEGER, mod(rank + 1, ranks),
     &   9, MPI_COMM_WORLD, req(2), ierr)
      do m = 1, 3
         out(0) = 50 * rank + m
         call MPI_STARTALL(2, req, ierr)
         call MPI_WAITALL(2, req, statuses, ierr)
         call same('persistent', in(0),
     &      50 * mod(rank + ranks - 1, ranks) + m)
         call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      end do
      call MPI_REQUEST_FREE(req(1), ierr)
      call MPI_REQUEST_FREE(req(2), ierr)
      call same('freed', req(2), MPI_REQUEST_NULL)
      end

      subroutine collectives(rank, ranks)
      implicit none
      include 'mpif.h'
      integer rank, ranks, ierr, i, op, root
      integer mine(4), all(4, 0:63), sums(4), value
      double precision x, y
      external product_mod
      do root = 0, ranks - 1
         value = -1
         if (rank .eq. root) value = root + 5
         call MPI_BCAST(value, 1, MPI_INTEGER, root, MPI_COMM_WORLD,
     &      ierr)
         call same('bcast', value, root + 5)
      end do
      do i = 1, 4
         mine(i) = 10 * rank + i
      end do
      call MPI_ALLGATHER(mine, 4, MPI_INTEGER, all, 4, MPI_INTEGER,
     &   MPI_COMM_WORLD, ierr)
      do i = 0, ranks - 1
         call same('allgather', all(3, i), 10 * i + 3)
      end do
      sums = mine
      call MPI_ALLREDUCE(MPI_IN_PLACE, sums, 4, MPI_INTEGER, MPI_SUM,
     &   MPI_COMM_WORLD, ierr)
      call same('allreduce in place', sums(2),
     &   5 * ranks * (ranks - 1) + 2 * ranks)
      x = rank
      call MPI_REDUCE(x, y, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0,
     &   MPI_COMM_WORLD, ierr)
      if (rank .eq. 0) call same('reduce', nint(y), ranks - 1)
      call MPI_OP_CREATE(product_mod, .true., op, ierr)
      value = rank + 2
      call MPI_ALLREDUCE(value, i, 1, MPI_INTEGER, op, MPI_COMM_WORLD,
     &   ierr)
      value = 1
      do root = 0, ranks - 1
         value = mod(value * (root + 2), 9973)
      end do
      call same('user operation', i, value)
      call MPI_OP_FREE(op, ierr)
      do i = 0, ranks - 1
         all(1, i) = 100 * rank + i
      end do
      call MPI_ALLTOALL(MPI_IN_PLACE, 0, MPI_INTEGER, all, 4,
     &   MPI_INTEGER, MPI_COMM_WORLD, ierr)
      do i = 0, ranks - 1
         call same('alltoall', all(1, i), 100 * i + rank)
      end do
      end

      subroutine product_mod(in, inout, n, type)
      implicit none
      integer n, type, in(n), inout(n), i
      do i = 1, n
         inout(i) = mod(in(i) * inout(i), 9973)
      end do
      end

      subroutine types(rank, ranks)
      implicit none
      include 'mpif.h'
      integer rank, ranks, ierr, row, i, j, dup, bytes
      integer a(5, 7), b(7), status(MPI_STATUS_SIZE)
      integer(kind=MPI_ADDRESS_KIND) lb, extent
      do j = 1, 7
         do i = 1, 5
            a(i, j) = 1000 * rank + 10 * i + j
         end do
      end do
      call MPI_TYPE_VECTOR(7, 1, 5, MPI_INTEGER, row, ierr)
      call MPI_TYPE_COMMIT(row, ierr)
      call MPI_TYPE_DUP(row, dup, ierr)
      call MPI_TYPE_GET_EXTENT(dup, lb, extent, ierr)
      call same('extent', int(extent), 31 * 4)
      call MPI_TYPE_SIZE(dup, bytes, ierr)
      call same('size', bytes, 28)
      call MPI_SENDRECV(a(3, 1), 1, dup, mod(rank + 1, ranks), 1,
     &   b, 7, MPI_INTEGER, mod(rank + ranks - 1, ranks), 1,
     &   MPI_COMM_WORLD, status, ierr)
      do j = 1, 7
         call same('row', b(j),
     &      1000 * mod(rank + ranks - 1, ranks) + 30 + j)
      end do
      call MPI_TYPE_FREE(row, ierr)
      call MPI_TYPE_FREE(dup, ierr)
      end

      subroutine comms(rank, ranks)
      implicit none
      include 'mpif.h'
      integer rank, ranks, ierr, half, me, n, world, group, sum, result
      integer list(64), i, created
      character*(MPI_MAX_OBJECT_NAME) name
      call MPI_COMM_SPLIT(MPI_COMM_WORLD, mod(rank, 2), -rank, half,
     &   ierr)
      call MPI_COMM_RANK(half, me, ierr)
      call MPI_COMM_SIZE(half, n, ierr)
      call same('size of the half', n, (ranks + 1 - mod(rank, 2)) / 2)
      call MPI_ALLREDUCE(me, sum, 1, MPI_INTEGER, MPI_SUM, half, ierr)
      call same('sum', sum, n * (n - 1) / 2)
      call MPI_COMM_SET_NAME(half, 'every other', ierr)
      call MPI_COMM_GET_NAME(half, name, n, ierr)
      call same('length of the name', n, 11)
      call MPI_COMM_FREE(half, ierr)
      call same('freed', half, MPI_COMM_NULL)
      call MPI_COMM_GROUP(MPI_COMM_WORLD, world, ierr)
      do i = 1, ranks
         list(i) = ranks - i
      end do
      call MPI_GROUP_INCL(world, ranks, list, group, ierr)
      call MPI_COMM_CREATE(MPI_COMM_WORLD, group, created, ierr)
      call MPI_COMM_RANK(created, me, ierr)
      call same('reversed', me, ranks - 1 - rank)
      call MPI_COMM_COMPARE(created, MPI_COMM_WORLD, result, ierr)
      call same('comparison', result, MPI_SIMILAR)
      call MPI_COMM_FREE(created, ierr)
      call MPI_GROUP_FREE(group, ierr)
      call MPI_GROUP_FREE(world, ierr)
      end

      subroutine attributes()
      implicit none
      include 'mpif.h'
      integer ierr, keyval, dup
      integer(kind=MPI_ADDRESS_KIND) value, got, extra
      logical flag
      extra = 0
      call MPI_COMM_CREATE_KEYVAL(MPI_COMM_DUP_FN,
     &   MPI_COMM_NULL_DELETE_FN, keyval, extra, ierr)
      value = 4711
      call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, keyval, value, ierr)
      call MPI_COMM_DUP(MPI_COMM_WORLD, dup, ierr)
      call MPI_COMM_GET_ATTR(dup, keyval, got, flag, ierr)
      if (.not. flag) call same('attribute found', 0, 1)
      call same('attribute', int(got), 4711)
      call MPI_COMM_DELETE_ATTR(MPI_COMM_WORLD, keyval, ierr)
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, keyval, got, flag, ierr)
      if (flag) call same('deleted attribute found', 1, 0)
      call MPI_COMM_FREE(dup, ierr)
      call MPI_COMM_FREE_KEYVAL(keyval, ierr)
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, MPI_TAG_UB, got, flag,
     &   ierr)
      if (.not. flag .or. got .lt. 32767) call same('tag_ub', 0, 1)
      end

      subroutine carts(rank, ranks)
      implicit none
      include 'mpif.h'
      integer rank, ranks, ierr, dims(2), coords(2), cart, me
      integer source, dest, halo, line, n
      logical periods(2), keep(2)
      dims = 0
      periods(1) = .true.
      periods(2) = .false.
      call MPI_DIMS_CREATE(ranks, 2, dims, ierr)
      call MPI_CART_CREATE(MPI_COMM_WORLD, 2, dims, periods, .false.,
     &   cart, ierr)
      call MPI_COMM_RANK(cart, me, ierr)
      call same('rank in the grid', me, rank)
      call MPI_CART_COORDS(cart, me, 2, coords, ierr)
      call same('row-major', coords(1) * dims(2) + coords(2), me)
      call MPI_CART_SHIFT(cart, 0, 1, source, dest, ierr)
      call MPI_SENDRECV(me, 1, MPI_INTEGER, dest, 1, halo, 1,
     &   MPI_INTEGER, source, 1, cart, MPI_STATUS_IGNORE, ierr)
      call same('halo', halo, source)
      keep(1) = .false.
      keep(2) = .true.
      call MPI_CART_SUB(cart, keep, line, ierr)
      call MPI_COMM_SIZE(line, n, ierr)
      call same('line', n, dims(2))
      call MPI_COMM_FREE(line, ierr)
      call MPI_COMM_FREE(cart, ierr)
      end

      subroutine errors(ranks)
      implicit none
      include 'mpif.h'
      integer ranks, ierr, code, class, value
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, MPI_ERRORS_RETURN,
     &   ierr)
      value = 0
      call MPI_SEND(value, 1, MPI_INTEGER, ranks + 3, 0,
     &   MPI_COMM_WORLD, code)
      call MPI_ERROR_CLASS(code, class, ierr)
      call same('error class', class, MPI_ERR_RANK)
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD,
     &   MPI_ERRORS_ARE_FATAL, ierr)
      end
