! The program of the paper that GridMPI follows, by `use mpi_f08`: as rate_by_n.c in all, which says why.
! `rate_by_n SEGMENT N...`: SEGMENT is what TCP carries in a frame of what the clusters are joined by.
program rate_by_n
   use mpi_f08
   implicit none
   include '../../../include/gridmpif.h'
   integer, parameter :: data_tag = 1, answer_tag = 2
   ! A message takes 20 ms, whatever the rate.
   integer, parameter :: per_second = 50, messages = 125, ahead = 4
   ! Beside the segment, with preamble, checksum and gap.
   integer, parameter :: headers = 90
   ! The kernel lets some segments go at once.
   double precision, parameter :: most = 1.01d0, least = 0.8d0
   integer :: rank, ranks, last, shared
   character, allocatable :: data(:)
   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   last = ranks - 1
   call check(ranks >= 2 .and. command_argument_count() >= 2, 'usage: rate_by_n SEGMENT N..., on two ranks or more')
   shared = max_rate()
   if (shared > 0) call follow()
   if (shared == 0 .and. rank == 0) print '(A)', 'rate_by_n: YAMPI_PSP_MAXRATE is not known; nothing is put'
   call MPI_Barrier(MPI_COMM_WORLD)
   if (rank == 0) print '(A,I0,A)', 'ok rate_by_n-fortran on ', ranks, ' ranks'
   call MPI_Finalize()
contains
   !> KB/s; 0 where it is not known, and where nobody knows the key.
   integer function max_rate()
      integer(MPI_ADDRESS_KIND) :: value
      integer :: missing
      logical :: flag
      flag = .false.
      call get_environment_variable('GRIDMPI_JOB', status=missing)
      if (missing /= 1) call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, value, flag)
      max_rate = 0
      if (flag) max_rate = int(value)
   end function

   subroutine put(matb)
      integer, intent(in) :: matb
      integer(MPI_ADDRESS_KIND) :: value
      logical :: flag
      value = matb
      call MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, value)
      call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, value, flag)
      call check(flag .and. value == matb, 'YAMPI_PSP_MATB is not what was put')
   end subroutine

   !> Puts a rate for each n. Every process does so, as in the paper; one of them sends.
   subroutine follow()
      integer :: sender(2), i, n, bytes
      double precision :: asked
      sender = [shared, processes_of_node()]
      call MPI_Bcast(sender, 2, MPI_INTEGER, 0, MPI_COMM_WORLD)
      allocate (data(sender(1)*(1000/per_second)))
      data = 'x'
      ! None is sent before the receiver looks: it would come late, and those behind it seem fast.
      if (rank == last) call answer(ahead)
      do i = 2, command_argument_count()
         n = argument(i)
         asked = payload(1000d0*(sender(1)/n)/sender(2), argument(1))
         bytes = int(asked/per_second)
         call put(shared/n)
         if (rank == 0) call stream(bytes, asked)
         if (rank == last) call receive(bytes, asked, n)
      end do
      if (rank == 0) call take_answers(ahead)
   end subroutine

   subroutine take_answers(count)
      integer, intent(in) :: count
      integer :: i
      do i = 1, count
         call MPI_Recv(data, 0, MPI_CHARACTER, last, answer_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
      end do
   end subroutine

   subroutine answer(count)
      integer, intent(in) :: count
      integer :: i
      do i = 1, count
         call MPI_Send(data, 0, MPI_CHARACTER, 0, answer_tag, MPI_COMM_WORLD)
      end do
   end subroutine

   !> Of so many bytes on the wire.
   double precision function payload(wire, segment)
      double precision, intent(in) :: wire
      integer, intent(in) :: segment
      payload = wire*segment/(segment + headers)
   end function

   !> Those among whom the node's rate is divided.
   integer function processes_of_node()
      type(MPI_Comm) :: node
      call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, node)
      call MPI_Comm_size(node, processes_of_node)
      call MPI_Comm_free(node)
   end function

   !> Messages, of which `ahead` at most are on the way: so few are left, when the next rate is put, to leave at that.
   subroutine stream(bytes, asked)
      integer, intent(in) :: bytes
      double precision, intent(in) :: asked
      double precision :: from, came
      integer :: i
      from = MPI_Wtime()
      do i = 1, messages
         call take_answers(1)
         call MPI_Send(data, bytes, MPI_CHARACTER, last, data_tag, MPI_COMM_WORLD)
      end do
      ! Of these at least it is known that they came meanwhile; whatever else this machine does only adds to the time.
      came = dble(messages - ahead)*bytes/(MPI_Wtime() - from)
      call check(came <= asked*most, 'more came than was asked for')
   end subroutine

   subroutine receive(bytes, asked, n)
      integer, intent(in) :: bytes, n
      double precision, intent(in) :: asked
      double precision :: came
      came = arriving(bytes)
      print '(A,I0,A,F0.1,A,F0.1,A,F5.3,A)', 'rate_by_n: n = ', n, ': ', asked/1000, ' KB/s of payload asked for, ', &
         came/1000, ' came: ', came/asked, ' of it'
      flush (6)
      call check(came >= asked*least, 'less came than was asked for')
   end subroutine

   !> Bytes per second from when the first message has come until the last one that surely left at this rate has.
   double precision function arriving(bytes)
      integer, intent(in) :: bytes
      double precision :: from, until
      type(MPI_Status) :: status
      integer :: i, count
      do i = 1, messages
         call MPI_Recv(data, bytes, MPI_CHARACTER, 0, data_tag, MPI_COMM_WORLD, status)
         if (i == 1) from = MPI_Wtime()
         if (i == messages - ahead) until = MPI_Wtime()
         call MPI_Get_count(status, MPI_CHARACTER, count)
         call check(count == bytes, 'a message is shorter')
         call answer(1)
      end do
      arriving = dble(messages - ahead - 1)*bytes/(until - from)
   end function

   !> A word of the command line, which must be a number, more than 0.
   integer function argument(place)
      integer, intent(in) :: place
      character(20) :: word
      integer :: wrong
      call get_command_argument(place, word)
      read (word, *, iostat=wrong) argument
      call check(wrong == 0 .and. argument > 0, 'no number: '//word)
   end function

   !> The job ends here if the value is not what it should be.
   subroutine check(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (.not. holds) then
         print '(A,I0,A,A)', 'FAIL rate_by_n: rank ', rank, ': ', what
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1)
      end if
   end subroutine
end program
