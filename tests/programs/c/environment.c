/* What a program may ask about its surroundings: initialized, thread level, predefined attributes, clock, versions. */
#include "check.h"

static int attribute(int keyval)
{
    int *value, found;
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &found);
    CHECK(found, "the predefined attribute %d is not set", keyval);
    return *value;
}

int main(int argc, char **argv)
{
    int flag, provided, version, subversion, length;
    MPI_Initialized(&flag);
    SAME(flag, 0);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    setup("environment");

    MPI_Initialized(&flag);
    SAME(flag, 1);
    MPI_Finalized(&flag);
    SAME(flag, 0);
    CHECK(provided >= MPI_THREAD_SINGLE && provided <= MPI_THREAD_MULTIPLE, "provided is %d", provided);
    int queried;
    MPI_Query_thread(&queried);
    SAME(queried, provided);
    MPI_Is_thread_main(&flag);
    SAME(flag, 1);

    CHECK(attribute(MPI_TAG_UB) >= 32767, "MPI_TAG_UB is %d", attribute(MPI_TAG_UB));
    int mine = attribute(MPI_TAG_UB), least;
    MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    SAME(mine, least); /* one world, one upper bound */

    /* A tag at the upper bound crosses. */
    int peer = size - 1 - rank;
    if (peer != rank) {
        int out = rank, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, peer, mine, &in, 1, MPI_INT, peer, mine, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        SAME(in, peer);
    }

    double before = MPI_Wtime(), after = MPI_Wtime();
    CHECK(after >= before, "the clock went from %f to %f", before, after);
    CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1, "the tick is %g s", MPI_Wtick());

    MPI_Get_version(&version, &subversion);
    CHECK(version >= 3, "the version is %d.%d", version, subversion);
    char name[MPI_MAX_PROCESSOR_NAME], library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Get_processor_name(name, &length);
    SAME(strlen(name), length);
    MPI_Get_library_version(library, &length);
    CHECK(length > 0, "the library has no name");

    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    CHECK(parent == MPI_COMM_NULL, "nobody spawned this program");
    return finish();
}
