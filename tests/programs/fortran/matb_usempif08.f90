! The attributes of include/gridmpif.h by `use mpi_f08`: what is got follows what is put. It needs a job whose links carry 160 Mbit/s.
program matb
   use mpi_f08
   implicit none
   include '../../../include/gridmpif.h'
   integer :: rank, ranks
   integer(MPI_ADDRESS_KIND) :: value
   logical :: flag
   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MAXRATE, value, flag)
   call check(flag .and. value == 20000, 'YAMPI_PSP_MAXRATE is not the bandwidth of the link')
   call MPI_Comm_set_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, 2000_MPI_ADDRESS_KIND)
   call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, value, flag)
   call check(flag .and. value == 2000, 'YAMPI_PSP_MATB is not what was put')
   call MPI_Comm_delete_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB)
   call MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, value, flag)
   call check(flag .and. value /= 2000, 'YAMPI_PSP_MATB is still there')
   call MPI_Barrier(MPI_COMM_WORLD)
   call MPI_Finalize()
   if (rank == 0) print '(A,I0,A)', 'ok matb-usempif08 on ', ranks, ' ranks'
contains
   !> The job ends here if the value is not what it should be.
   subroutine check(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (.not. holds) then
         print '(A,I0,A,A)', 'FAIL matb-usempif08: rank ', rank, ': ', what
         flush (6)
         call MPI_Abort(MPI_COMM_WORLD, 1)
      end if
   end subroutine
end program
