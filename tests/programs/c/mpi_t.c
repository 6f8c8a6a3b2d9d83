/* The tools interface (MPI 4.1 chapter 15): the vendor's variables are there as ever, and GridMPI's after them. What is set is seen at
 * once, by attribute too, and what crosses between clusters follows it and is counted.
 *
 * With an argument the job must hold each node to so many bits per second; a second one is a rate that is too low.
 *
 * Open MPI 4.1 crashes when it is asked anything after MPI_Finalize, so this program ends the interface before. */
#include "check.h"
#include "../../../include/gridmpi.h"

enum { BYTES = 400000, TEXT = 256, MANY = 4096 };

#define FINE(call) SAME(call, MPI_SUCCESS)

typedef unsigned long long Number;

/* A job, and clusters beside this one: without them GridMPI's variables are not there, or at rest. */
static int in_job, across;

static const char *const COUNTERS[] = {"gridmpi_bytes_sent", "gridmpi_bytes_received", "gridmpi_grants", "gridmpi_retransmits",
                                       "gridmpi_damaged"};
enum { SENT, RECEIVED, GRANTS, RETRANSMITS, DAMAGED, COUNTED };

static int control_name(int index, char *name)
{
    int length = TEXT;
    return MPI_T_cvar_get_info(index, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
}

static int control(const char *name)
{
    int index = -1;
    FINE(MPI_T_cvar_get_index(name, &index));
    return index;
}

static MPI_T_cvar_handle open_control(const char *name, int *count)
{
    MPI_T_cvar_handle handle;
    FINE(MPI_T_cvar_handle_alloc(control(name), NULL, &handle, count));
    return handle;
}

static Number read_matb(void)
{
    int count = 0;
    Number value = 77;
    MPI_T_cvar_handle handle = open_control("gridmpi_matb", &count);
    SAME(count, 1);
    FINE(MPI_T_cvar_read(handle, &value));
    FINE(MPI_T_cvar_handle_free(&handle));
    CHECK(handle == MPI_T_CVAR_HANDLE_NULL, "a handle that is free is not null");
    return value;
}

static void write_matb(Number value)
{
    int count;
    MPI_T_cvar_handle handle = open_control("gridmpi_matb", &count);
    FINE(MPI_T_cvar_write(handle, &value));
    FINE(MPI_T_cvar_handle_free(&handle));
}

/* Open MPI unloads components that it has no use for in MPI_Init, and 4.1 crashes when their variables are read then: what is there before
 * is read before. MPICH 5 crashes when its own are read before. */
#ifdef OPEN_MPI
enum { READS_BEFORE = 1 };
#else
enum { READS_BEFORE = 0 };
#endif

/* Every control variable is found again by its name, and from the first on those that are bound to nothing can be read. */
static void read_controls(int first)
{
    int number, read = 0;
    FINE(MPI_T_cvar_get_num(&number));
    for (int i = 0; i < number; i++) {
        char name[TEXT], again[TEXT], *value;
        int length = TEXT, bind, scope, verbosity, count = 0, index;
        MPI_Datatype type;
        MPI_T_enum values;
        int code = MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, &values, NULL, NULL, &bind, &scope);
        if (code == MPI_T_ERR_INVALID_INDEX) continue; /* Its component is closed. */
        SAME(code, MPI_SUCCESS);
        CHECK(length == (int)strlen(name) + 1 || length >= TEXT, "%s: %d", name, length);
        if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS) {
            FINE(control_name(index, again));
            CHECK(strcmp(name, again) == 0, "%d is %s, and %d of that name is %s", i, name, index, again);
        }
        if (i < first || bind != MPI_T_BIND_NO_OBJECT) continue;
        MPI_T_cvar_handle handle;
        FINE(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
        value = calloc((size_t)count + 1, 16);
        code = MPI_T_cvar_read(handle, value);
        /* Open MPI says so of some that have no value. */
        CHECK(code == MPI_SUCCESS || code == MPI_T_ERR_INVALID_INDEX, "%s (%d of %d): %d", name, i, number, code);
        read += code == MPI_SUCCESS;
        free(value);
        FINE(MPI_T_cvar_handle_free(&handle));
    }
    CHECK(first > 0 || read > 10, "%d of %d", read, number);
}

/* The same for performance variables. */
static void look_at_performance(void)
{
    int number;
    FINE(MPI_T_pvar_get_num(&number));
    for (int i = 0; i < number; i++) {
        char name[TEXT];
        int length = TEXT, class, bind, readonly, continuous, atomic, index;
        int code = MPI_T_pvar_get_info(i, name, &length, NULL, &class, NULL, NULL, NULL, NULL, &bind, &readonly, &continuous, &atomic);
        if (code != MPI_SUCCESS) continue; /* Open MPI's components again. */
        FINE(MPI_T_pvar_get_index(name, class, &index));
        CHECK(index == i, "%s is %d and %d", name, i, index);
    }
}

/* Categories name variables that there are; ours has ours. */
static void look_at_categories(void)
{
    int number, controls, variables, ours = 0;
    FINE(MPI_T_category_get_num(&number));
    FINE(MPI_T_cvar_get_num(&controls));
    FINE(MPI_T_pvar_get_num(&variables));
    for (int i = 0; i < number; i++) {
        char name[TEXT], member[TEXT];
        int length = TEXT, cvars = 0, pvars = 0, categories = 0;
        static int list[MANY];
        int code = MPI_T_category_get_info(i, name, &length, NULL, NULL, &cvars, &pvars, &categories);
        if (code == MPI_T_ERR_INVALID_INDEX) continue;
        SAME(code, MPI_SUCCESS);
        CHECK(cvars <= MANY && pvars <= MANY && categories <= MANY, "%s: %d, %d, %d", name, cvars, pvars, categories);
        int is_ours = strcmp(name, "gridmpi") == 0;
        ours += is_ours;
        FINE(MPI_T_category_get_cvars(i, MANY, list));
        for (int j = 0; j < cvars; j++) {
            CHECK(list[j] >= 0 && list[j] < controls, "%s has %d of %d", name, list[j], controls);
            if (control_name(list[j], member) == MPI_SUCCESS) SAME(strncmp(member, "gridmpi_", 8) == 0, is_ours);
        }
        FINE(MPI_T_category_get_pvars(i, MANY, list));
        for (int j = 0; j < pvars; j++) CHECK(list[j] >= 0 && list[j] < variables, "%s has %d of %d", name, list[j], variables);
        FINE(MPI_T_category_get_categories(i, MANY, list));
        for (int j = 0; j < categories; j++) CHECK(list[j] >= 0 && list[j] < number, "%s has %d of %d", name, list[j], number);
        if (is_ours) {
            SAME(cvars, 3);
            SAME(pvars, 7);
            int index;
            FINE(MPI_T_category_get_index("gridmpi", &index));
            SAME(index, i);
            list[1] = -5;
            FINE(MPI_T_category_get_cvars(i, 1, list));
            SAME(list[0], control("gridmpi_matb"));
            SAME(list[1], -5);
        }
    }
    SAME(ours, in_job);
}

/* Strings and places that the program does not want, or has little room for (15.3.3). */
static void ask_for_little(void)
{
    int index = control("gridmpi_matb"), length = 5, scope = 0, described = 0;
    char name[TEXT] = "##########";
    FINE(MPI_T_cvar_get_info(index, name, &length, NULL, NULL, NULL, NULL, &described, NULL, &scope));
    CHECK(strcmp(name, "grid") == 0 && name[5] == '#', "%s", name);
    SAME(length, sizeof "gridmpi_matb");
    CHECK(described > 20, "%d", described);
    SAME(scope, MPI_T_SCOPE_LOCAL);
    FINE(MPI_T_cvar_get_info(index, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(MPI_T_cvar_get_index("gridmpi_none", &index) != MPI_SUCCESS, "there is one");
}

/* How pacing was asked for can be read, and not written. */
static void check_pacing(void)
{
    int count = 0;
    char value[TEXT] = "";
    const char *wanted = getenv("GRIDMPI_PACING");
    MPI_T_cvar_handle handle = open_control("gridmpi_pacing", &count);
    CHECK(count > 0 && count < TEXT, "%d", count);
    FINE(MPI_T_cvar_read(handle, value));
    CHECK(strcmp(value, wanted ? wanted : "auto") == 0, "%s", value);
    SAME(MPI_T_cvar_write(handle, value), MPI_T_ERR_CVAR_SET_NEVER);
    FINE(MPI_T_cvar_handle_free(&handle));
}

/* Who paces is known once something has crossed. */
static void check_paced_by(void)
{
    int count = 0;
    char value[TEXT] = "";
    MPI_T_cvar_handle handle = open_control("gridmpi_paced_by", &count);
    CHECK(count > 0 && count < TEXT, "%d", count);
    FINE(MPI_T_cvar_read(handle, value));
    if (across && rank == 0)
        CHECK(!strcmp(value, "tcp") || !strcmp(value, "fq") || !strcmp(value, "card"), "%s", value);
    if (!across) CHECK(value[0] == 0, "%s", value);
    SAME(MPI_T_cvar_write(handle, value), MPI_T_ERR_CVAR_SET_NEVER);
    FINE(MPI_T_cvar_handle_free(&handle));
}

static MPI_T_pvar_handle watch(MPI_T_pvar_session session, const char *name, int class)
{
    int index = -1, count = 0;
    MPI_T_pvar_handle handle;
    FINE(MPI_T_pvar_get_index(name, class, &index));
    FINE(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    SAME(count, 1);
    return handle;
}

static Number number_of(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    Number value = 77;
    FINE(MPI_T_pvar_read(session, handle, &value));
    return value;
}

static double seconds_of(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    double value = -1;
    FINE(MPI_T_pvar_read(session, handle, &value));
    return value;
}

static int matb_attribute(void)
{
    int *value, flag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, YAMPI_PSP_MATB, &value, &flag);
    return flag ? *value : 0;
}

/* Counters, a timer and a level in one session; another session does not have them. */
static void count_crossings(char *data)
{
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle counters[COUNTED], stalled, level;
    const Number rate = 16000000;
    FINE(MPI_T_pvar_session_create(&session));
    FINE(MPI_T_pvar_session_create(&other));
    for (int i = 0; i < COUNTED; i++) counters[i] = watch(session, COUNTERS[i], MPI_T_PVAR_CLASS_COUNTER);
    stalled = watch(session, "gridmpi_time_stalled", MPI_T_PVAR_CLASS_TIMER);
    level = watch(session, "gridmpi_rate_granted", MPI_T_PVAR_CLASS_LEVEL);

    /* Nothing counts before it is started; a level is always there. */
    crossing(data, BYTES);
    for (int i = 0; i < COUNTED; i++) SAME(number_of(session, counters[i]), 0);
    SAME(MPI_T_pvar_start(session, level), MPI_T_ERR_PVAR_NO_STARTSTOP);
    SAME(number_of(session, level), read_matb());
    FINE(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    CHECK(number_of(session, counters[SENT]) < BYTES, "it counts what was before");
    MPI_Barrier(MPI_COMM_WORLD); /* Nobody sends before all count. */

    /* At a rate of its own. */
    write_matb(rate);
    if (across) {
        SAME(read_matb(), rate);
        SAME(matb_attribute(), rate / 8000);
        SAME(number_of(session, level), rate);
    }
    double slow = crossing(data, BYTES), least = (BYTES - 100000) * 8.0 / (double)rate;
    Number sent = number_of(session, counters[SENT]), received = number_of(session, counters[RECEIVED]);
    double waited = seconds_of(session, stalled);
    MPI_Barrier(MPI_COMM_WORLD); /* What comes next counts, too. */
    if (across && rank == 0) {
        /* The kernel lets some segments go at once. */
        CHECK(slow > least, "%g s, at least %g", slow, least);
        CHECK(sent > BYTES && sent < 2 * BYTES, "%llu", sent);
        CHECK(received > 0 && received < BYTES, "%llu", received);
        CHECK(waited > least / 4 && waited < slow + 1, "%g s of %g", waited, slow);
    } else if (across && rank == size - 1) {
        CHECK(received > BYTES && received < 2 * BYTES, "%llu", received);
    } else if (!across) {
        CHECK(sent == 0 && received == 0 && waited == 0, "%llu, %llu, %g", sent, received, waited);
    }
    write_matb(0);
    CHECK(!across || read_matb() != rate, "it is still there");

    /* Each handle goes its own way. */
    FINE(MPI_T_pvar_stop(session, counters[SENT]));
    sent = number_of(session, counters[SENT]);
    crossing(data, BYTES);
    SAME(number_of(session, counters[SENT]), sent);
    if (rank == 0) {
        const char *pacing = getenv("GRIDMPI_PACING");
        Number grants = number_of(session, counters[GRANTS]);
        CHECK((grants > 0) == (pacing != NULL && strcmp(pacing, "auto") == 0), "%llu", grants);
    }
    FINE(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    received = 5;
    FINE(MPI_T_pvar_write(session, counters[RECEIVED], &received));
    SAME(number_of(session, counters[RECEIVED]), 5);
    received = 0;
    FINE(MPI_T_pvar_readreset(session, counters[RECEIVED], &received));
    SAME(received, 5);
    SAME(number_of(session, counters[RECEIVED]), 0);
    FINE(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    SAME(number_of(session, counters[SENT]), 0);
    CHECK(seconds_of(session, stalled) == 0, "%g", seconds_of(session, stalled));
    SAME(MPI_T_pvar_reset(session, level), MPI_T_ERR_PVAR_NO_WRITE);
    SAME(MPI_T_pvar_readreset(session, level, &received), MPI_T_ERR_PVAR_NO_ATOMIC);
    SAME(MPI_T_pvar_read(other, level, &received), MPI_T_ERR_INVALID_HANDLE);
    FINE(MPI_T_pvar_handle_free(session, &level));
    CHECK(level == MPI_T_PVAR_HANDLE_NULL, "a handle that is free is not null");
    FINE(MPI_T_pvar_session_free(&other));
    FINE(MPI_T_pvar_session_free(&session));
}

int main(int argc, char **argv)
{
    int provided, early, late;
    program = "mpi_t";
    in_job = getenv("GRIDMPI_JOB") != NULL;
    FINE(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    FINE(MPI_T_cvar_get_num(&early));
    char(*names)[TEXT] = calloc((size_t)early, TEXT);
    for (int i = 0; i < early; i++) control_name(i, names[i]);
    if (READS_BEFORE) read_controls(0);
    if (in_job) {
        SAME(read_matb(), 0);
        write_matb(24000000);
        SAME(read_matb(), 24000000);
    }

    start(&argc, &argv, "mpi_t");
    across = is_spanning(MPI_COMM_WORLD);
    FINE(MPI_T_cvar_get_num(&late));
    CHECK(late >= early, "%d of %d", late, early);
    for (int i = 0; i < early; i++) {
        char name[TEXT] = "";
        /* Open MPI closes components that it has no use for, and their variables go. */
        if (control_name(i, name) != MPI_SUCCESS) continue;
        CHECK(strcmp(name, names[i]) == 0, "%d was %s and is %s", i, names[i], name);
    }
    read_controls(READS_BEFORE ? early : 0);
    CHECK(control_name(late, (char[TEXT]){0}) != MPI_SUCCESS, "one too many");
    CHECK(control_name(-1, (char[TEXT]){0}) != MPI_SUCCESS, "less than none");
    look_at_performance();
    look_at_categories();
    if (in_job) {
        /* What was written before MPI_Init counts. */
        CHECK(!across || read_matb() == 24000000, "%llu", read_matb());
        if (argc > 2) {
            /* Too low for a job to get on: it is said, and nothing changes. */
            write_matb(strtoull(argv[2], NULL, 10));
            SAME(read_matb(), 24000000);
        }
        write_matb(0);
        if (argc > 1) SAME(read_matb(), strtoull(argv[1], NULL, 10));
        ask_for_little();
        check_pacing();
        char *data = calloc(BYTES, 1);
        crossing(data, BYTES); /* Connections are made. */
        count_crossings(data);
        check_paced_by();
        free(data);
    }
    free(names);
    FINE(MPI_T_finalize());
    return finish();
}
