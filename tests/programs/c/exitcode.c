/* `exitcode RANK CODE`: everything goes well, and one rank ends with a code of its own. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv, "exitcode");
    int who = argc > 1 ? atoi(argv[1]) : 1, code = argc > 2 ? atoi(argv[2]) : 3;
    finish();
    return rank == (who % size + size) % size ? code : 0;
}
