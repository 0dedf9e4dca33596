/* The library in the life of a process: forked children, exit handlers, the end of the driver, loading and unloading,
 * and threads that come and go. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "support/child.h"
#include "support/effort.h"

#include <strata/dlpack_types.h>

enum { FORKS = 150, WORKERS = 4, FORK_PATIENCE_S = 20, SHORT_LIVES = 3000 };

/* ---- everything that can be called ---- */

static struct {
    strata_runtime *runtime, *own;
    strata_stack *stack;
    strata_resource *top;
    strata_block block;
    strata_ref *ref;
    struct DLManagedTensorVersioned *tensor;
    strata_scalar *scalar;
    strata_fence *fence;
    strata_launch open, ready;
    CUstream stream; /* acquired */
} scene;

static void set_scene(const char *stack)
{
    strata_runtime_config config = {.stack_text = stack};
    child_ok(strata_runtime_get(0, &scene.runtime));
    child_ok(strata_runtime_create(&config, &scene.own));
    child_ok(strata_stack_create("direct", 0, &scene.stack));
    scene.top = strata_stack_top(strata_runtime_stack(scene.runtime));
    child_ok(strata_runtime_stream_acquire(scene.runtime, &scene.stream));
    child_ok(strata_runtime_allocate(scene.runtime, 4096, scene.stream, &scene.block));
    child_ok(strata_ref_allocate(scene.runtime, STRATA_ELEMENT_F32, 16, false, scene.stream, &scene.ref));
    child_ok(strata_ref_export_dlpack(scene.ref, STRATA_DLPACK_STREAM_NONE, NULL, &scene.tensor));
    child_ok(strata_scalar_create(scene.runtime, STRATA_ELEMENT_F32, NULL, scene.stream, &scene.scalar));
    child_ok(strata_fence_create(scene.runtime, &scene.fence));
    child_ok(strata_launch_begin(&scene.open, scene.runtime, scene.stream, STRATA_LAUNCH_STRICT));
    child_ok(strata_launch_begin(&scene.ready, scene.runtime, scene.stream, STRATA_LAUNCH_STRICT));
    child_ok(strata_launch_use(&scene.ready, &scene.block, STRATA_ACCESS_READ));
    child_ok(strata_launch_preflight(&scene.ready));
}

typedef enum kind { USE, FREE, END } kind; /* FREE, END: succeed once the driver is gone */

typedef struct call {
    kind kind;
    const char *name;
    strata_status (*make)(void);
} call;

static size_t bytes;
static strata_block out;
static strata_usage usage;
static const strata_request request = {.bytes = 64};

#define CALL(kind, name, expression)       \
    static strata_status call_##name(void) \
    {                                      \
        return expression;                 \
    }
#define CALLS(X)                                                                                                    \
    X(USE, get, strata_runtime_get(0, &(strata_runtime *){NULL}))                                                   \
    X(USE, get_another, strata_runtime_get(1, &(strata_runtime *){NULL}))                                           \
    X(USE, create, strata_runtime_create(NULL, &(strata_runtime *){NULL}))                                          \
    X(USE, create_stack, strata_stack_create("direct", 0, &(strata_stack *){NULL}))                                 \
    X(USE, create_async, strata_async_create(0, NULL, &(strata_resource *){NULL}))                                  \
    X(USE, create_direct, strata_direct_create(0, NULL, &(strata_resource *){NULL}))                                \
    X(USE, driver_info, strata_driver_get_info(&(strata_driver_info){0}))                                           \
    X(USE, device_info, strata_device_get_info(0, &(strata_device_info){0}))                                        \
    X(USE, device_check, strata_device_check(0))                                                                    \
    X(USE, allocate, strata_runtime_allocate(scene.runtime, 4096, scene.stream, &out))                              \
    X(USE, allocate_default, strata_runtime_allocate(scene.runtime, 4096, NULL, &out))                              \
    X(USE, allocate_unknown, strata_runtime_allocate(scene.runtime, 4096, CU_STREAM_PER_THREAD, &out))              \
    X(USE, allocate_request, strata_runtime_allocate_request(scene.runtime, &request, &out))                        \
    X(USE, resource_allocate, strata_resource_allocate(scene.top, &request, &out))                                  \
    X(USE, usage, strata_runtime_usage(scene.runtime, &usage))                                                      \
    X(USE, resource_usage, strata_resource_usage(scene.top, &usage))                                                \
    X(USE, reap, strata_runtime_reap_pending(scene.runtime))                                                        \
    X(USE, trim, strata_runtime_trim(scene.runtime, 0, &bytes))                                                     \
    X(USE, find, strata_runtime_find(scene.runtime, scene.block.address, &out))                                     \
    X(USE, prepare, strata_runtime_prepare_block_use(scene.runtime, &scene.block, NULL, STRATA_ACCESS_READ))        \
    X(USE, finish, strata_runtime_finish_block_use(scene.runtime, &scene.block, NULL, STRATA_ACCESS_READ))          \
    X(USE, prepare_first, strata_runtime_prepare_first_use(scene.runtime, &scene.block, NULL, STRATA_ACCESS_WRITE)) \
    X(USE, finish_first, strata_runtime_finish_first_use(scene.runtime, &scene.block, NULL, STRATA_ACCESS_WRITE))   \
    X(USE, record, strata_runtime_record_block_use(scene.runtime, &scene.block, NULL, STRATA_ACCESS_READ))          \
    X(USE, resource_prepare, strata_resource_prepare_use(scene.top, &scene.block, NULL, STRATA_ACCESS_READ))        \
    X(USE, resource_finish, strata_resource_finish_use(scene.top, &scene.block, NULL, STRATA_ACCESS_READ))          \
    X(USE, register_stream, strata_runtime_register_stream(scene.runtime, CU_STREAM_PER_THREAD))                    \
    X(USE, unregister_stream, strata_runtime_unregister_stream(scene.runtime, scene.stream))                        \
    X(USE, acquire, strata_runtime_stream_acquire(scene.runtime, &(CUstream){NULL}))                                \
    X(USE, release, strata_runtime_stream_release(scene.runtime, scene.stream))                                     \
    X(USE, synchronize, strata_runtime_stream_synchronize(scene.runtime, scene.stream))                             \
    X(USE, launch_begin, strata_launch_begin(&(strata_launch){0}, scene.runtime, NULL, STRATA_LAUNCH_STRICT))       \
    X(USE, launch_use, strata_launch_use(&scene.open, &scene.block, STRATA_ACCESS_READ))                            \
    X(USE, launch_use_address, strata_launch_use_address(&scene.open, scene.block.address, STRATA_ACCESS_READ))     \
    X(USE, launch_commit, strata_launch_commit(&scene.ready))                                                       \
    X(USE, ref_allocate,                                                                                            \
      strata_ref_allocate(scene.runtime, STRATA_ELEMENT_F32, 16, true, NULL, &(strata_ref *){NULL}))                \
    X(USE, budget, strata_runtime_budget_snapshot(scene.runtime, &(strata_runtime_budget){0}))                      \
    X(USE, fence_create, strata_fence_create(scene.runtime, &(strata_fence *){NULL}))                               \
    X(USE, fence_record, strata_fence_record(scene.fence, NULL))                                                    \
    X(USE, fence_query, strata_fence_query(scene.fence))                                                            \
    X(USE, ref_access, strata_ref_access(scene.ref, &(strata_ref_memory){0}))                                       \
    X(USE, ref_record_write, strata_ref_record_write(scene.ref, NULL))                                              \
    X(USE, ref_last_write, strata_ref_last_write_stream(scene.ref, &(strata_last_write){0}))                        \
    X(USE, last_write_wait, strata_last_write_wait(scene.runtime, &(strata_last_write){0}, NULL))                   \
    X(USE, export_dlpack, strata_ref_export_dlpack(scene.ref, 1, NULL, &(struct DLManagedTensorVersioned *){NULL})) \
    X(USE, import_dlpack, strata_ref_import_dlpack(scene.runtime, scene.tensor, &(strata_ref *){NULL}))             \
    X(USE, launch_use_dlpack, strata_launch_use_dlpack(&scene.open, scene.tensor, STRATA_ACCESS_READ))              \
    X(USE, launch_use_arrow, strata_launch_use_arrow(&scene.open, NULL, STRATA_ACCESS_READ))                        \
    X(USE, scalar_create,                                                                                           \
      strata_scalar_create(scene.runtime, STRATA_ELEMENT_F32, NULL, NULL, &(strata_scalar *){NULL}))                \
    X(USE, scalar_set, strata_scalar_set(scene.scalar, "1.2", NULL))                                                \
    X(USE, scalar_address, strata_scalar_address(scene.scalar, &(CUdeviceptr){0}))                                  \
    X(USE, launch_use_ref, strata_launch_use_ref(&scene.open, scene.ref, STRATA_ACCESS_READ))                       \
    X(USE, of_address, strata_runtime_of_address(scene.block.address, &(strata_runtime *){NULL}))                   \
    X(USE, use_until_free, strata_runtime_use_until_free(scene.runtime, &scene.block, NULL))                        \
    X(USE, malloc, strata_malloc(&(void *){NULL}, 4096))                                                            \
    X(USE, malloc_on, strata_malloc_on(&(void *){NULL}, 4096, scene.stream))                                        \
    X(USE, memory_info, strata_memory_info(&bytes, NULL))                                                           \
    X(FREE, free, strata_free((void *)(uintptr_t)scene.block.address))                                              \
    X(FREE, free_on, strata_free_on((void *)(uintptr_t)scene.block.address, scene.stream))                          \
    X(FREE, deallocate, strata_runtime_deallocate(scene.runtime, &scene.block))                                     \
    X(FREE, deallocate_on, strata_runtime_deallocate_on(scene.runtime, &scene.block, NULL))                         \
    X(FREE, deallocate_address, strata_runtime_deallocate_address(scene.runtime, scene.block.address, NULL))        \
    X(FREE, deallocate_on_unknown, strata_runtime_deallocate_on(scene.runtime, &scene.block, CU_STREAM_PER_THREAD)) \
    X(FREE, resource_deallocate, strata_resource_deallocate(scene.top, &scene.block, scene.stream))                 \
    X(END, destroy, strata_runtime_destroy(scene.own))                                                              \
    X(END, destroy_stack, strata_stack_destroy(scene.stack))

CALLS(CALL)
#undef CALL

static const call calls[] = {
#define CALL_ROW(kind, name, expression) {kind, #name, call_##name},
    CALLS(CALL_ROW)
#undef CALL_ROW
};

enum { CALL_COUNT = sizeof calls / sizeof calls[0] };

static void check_call(size_t which, strata_status want)
{
    strata_status got = calls[which].make();
    if (got != want)
        printf("call %s: ", calls[which].name);
    child_check_status(got, want, calls[which].name, __LINE__);
    if (got == STRATA_SUCCESS)
        return;
    child_check(strata_last_error()->driver_code == CUDA_SUCCESS); /* refused without a call */
    child_check(!strata_last_error()->driver_name && !strata_last_error()->driver_call);
}

/* ---- forked children ---- */

static void expect_forked_everywhere(void)
{
    for (size_t i = 0; i < CALL_COUNT; i++) {
        check_call(i, STRATA_ERROR_FORKED);
        child_check(strata_last_error()->status == STRATA_ERROR_FORKED);
        child_check_words("fork");
    }
    child_check(strata_runtime_bytes_outstanding(scene.runtime) == 0);
}

/* Calls that have nothing to do with the driver: they only must not hang. */
static void touch_the_rest(void)
{
    strata_tag tag;
    strata_tag_intern("in the child", &tag);
    strata_tag_name(1);
    strata_driver_choose("cuda");
    strata_driver_count_calls();
    strata_layer_register(NULL);
    strata_set_log_callback(NULL, NULL);
    strata_stack_create("nonsense", 0, &(strata_stack *){NULL});
    strata_runtime_block_state(scene.runtime, scene.block.id);
    strata_launch_cancel(&scene.ready);
    strata_launch_end(&scene.open);
    child_check(!strata_holds((void *)(uintptr_t)scene.block.address));
    child_check(strata_ref_clone(scene.ref) == scene.ref);
    child_status(strata_scalar_destroy(scene.scalar), STRATA_ERROR_FORKED);
    strata_fail(STRATA_ERROR_IO, "before the deleter");
    scene.tensor->deleter(scene.tensor);
    child_check(strata_last_error()->status == STRATA_ERROR_IO); /* nothing was tried */
    child_status(strata_ref_release(scene.ref), STRATA_ERROR_FORKED);
    child_status(strata_ref_release(scene.ref), STRATA_ERROR_FORKED);
    child_status(strata_ref_release(scene.ref), STRATA_ERROR_FORKED);
}

static void fork_and_look(void)
{
    fflush(NULL);
    pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        alarm(test_timeout(FORK_PATIENCE_S));
        expect_forked_everywhere();
        touch_the_rest();
        fflush(NULL);
        test_child_leave(0);
    }
    int status;
    child_check(waitpid(child, &status, 0) == child);
    child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void forked_child_is_refused(void)
{
    set_scene("async");
    fork_and_look();
    child_ok(strata_launch_commit(&scene.ready));
    child_ok(strata_launch_end(&scene.ready));
    child_ok(strata_launch_end(&scene.open));
    child_ok(strata_ref_release(scene.ref));
    scene.tensor->deleter(scene.tensor); /* the child's call did nothing */
    child_ok(strata_scalar_destroy(scene.scalar));
    child_ok(strata_runtime_deallocate(scene.runtime, &scene.block));
    child_ok(strata_runtime_stream_release(scene.runtime, scene.stream));
    child_ok(strata_runtime_destroy(scene.own));
    child_ok(strata_stack_destroy(scene.stack));
    child_ok(strata_runtime_reap_pending(scene.runtime));
}

static sem_t table_held, forked;
static pthread_key_t at_thread_end;

/* Between a few instructions of every allocation, a thread is where this one stays until the fork is over. */
static void *hold_table(void *data)
{
    strata_table *table = strata_runtime_stack(scene.runtime)->head.table;
    strata_lock_take(&table->lock);
    sem_post(&table_held);
    sem_wait(&forked);
    strata_lock_release(&table->lock);
    return data;
}

/* The child's only thread has slots of the table, and returns. */
static void *fork_and_return(void *data)
{
    pthread_t holder;
    strata_block block;
    pid_t *child = data;
    child_ok(strata_runtime_allocate(scene.runtime, 4096, NULL, &block));
    child_check(pthread_create(&holder, NULL, hold_table, NULL) == 0);
    sem_wait(&table_held);
    fflush(NULL);
    *child = fork();
    if (*child == 0) {
        alarm(test_timeout(FORK_PATIENCE_S));
        pthread_setspecific(at_thread_end, child);
        return NULL;
    }
    sem_post(&forked);
    pthread_join(holder, NULL);
    child_ok(strata_runtime_deallocate(scene.runtime, &block));
    return NULL;
}

/* Leaves once the library has ended what it keeps for the thread; asks to be called again if that is still to come. */
static void leave_child(void *data)
{
    if (!strata_thread_current)
        test_child_leave(0);
    pthread_setspecific(at_thread_end, data);
}

static void forked_child_whose_thread_returns_ends(void)
{
    pthread_t worker;
    pid_t child = -1;
    int status;
    child_ok(strata_runtime_get(0, &scene.runtime));
    child_check(pthread_key_create(&at_thread_end, leave_child) == 0);
    child_check(sem_init(&table_held, 0, 0) == 0 && sem_init(&forked, 0, 0) == 0);
    child_check(pthread_create(&worker, NULL, fork_and_return, &child) == 0);
    pthread_join(worker, NULL);
    child_check(child > 0);
    child_check(waitpid(child, &status, 0) == child);
    child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void child_forked_before_the_first_use_works(void)
{
    fflush(NULL);
    pid_t child = fork();
    child_check(child >= 0);
    int status = 0;
    if (child)
        child_check(waitpid(child, &status, 0) == child);
    child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    strata_runtime *runtime;
    strata_block block;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_allocate(runtime, 4096, NULL, &block));
    child_ok(strata_runtime_deallocate(runtime, &block));
    if (!child)
        exit(0);
}

static _Atomic bool stopping;

static void ignore_error(const strata_error *error, void *data)
{
    (void)error, (void)data;
}

static void *end_at_once(void *data)
{
    (void)data;
    strata_fail(STRATA_ERROR_IO, "a short life");
    return NULL;
}

/* Takes every lock that there is, again and again. */
static void *work(void *data)
{
    (void)data;
    unsigned turn = 0;
    while (!atomic_load(&stopping)) {
        strata_block block;
        strata_stack *stack;
        strata_tag tag;
        pthread_t thread;
        char name[32];
        snprintf(name, sizeof name, "tag %u", turn++ % 5000);
        strata_tag_intern(name, &tag);
        strata_fail(STRATA_ERROR_IO, "often");
        strata_set_log_callback(turn % 2 ? ignore_error : NULL, NULL);
        if (strata_runtime_allocate(scene.runtime, 4096, CU_STREAM_PER_THREAD, &block) == STRATA_SUCCESS)
            strata_runtime_deallocate_on(scene.runtime, &block, CU_STREAM_PER_THREAD);
        strata_stack_create("nonsense", 0, &stack);
        if (turn % 8 == 0 && strata_stack_create("direct", 0, &stack) == STRATA_SUCCESS)
            strata_stack_destroy(stack);
        if (turn % 8 == 0 && pthread_create(&thread, NULL, end_at_once, NULL) == 0)
            pthread_join(thread, NULL);
        strata_runtime_reap_pending(scene.runtime);
    }
    return NULL;
}

static void children_forked_in_the_middle_of_work_do_not_hang(void)
{
    pthread_t threads[WORKERS];
    set_scene("async");
    for (size_t i = 0; i < WORKERS; i++)
        child_check(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (size_t i = 0; i < test_effort(FORKS, 2); i++)
        fork_and_look();
    atomic_store(&stopping, true);
    for (size_t i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
}

static void *open_driver(void *data)
{
    *(strata_status *)data = strata_driver_get_info(&(strata_driver_info){0});
    return NULL;
}

static const char *in_pause_folder(char path[4200], const char *name)
{
    snprintf(path, 4200, "%s/%s", getenv("STRATA_SHIM_PAUSE"), name);
    return path;
}

/* The shim waits before the driver is open. */
static void child_forked_while_the_driver_opens_is_refused(void)
{
    pthread_t thread;
    char path[4200];
    strata_status opened = STRATA_ERROR_IO;
    child_check(pthread_create(&thread, NULL, open_driver, &opened) == 0);
    in_pause_folder(path, "paused");
    while (access(path, F_OK) != 0)
        usleep(1000);
    pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        alarm(test_timeout(FORK_PATIENCE_S));
        child_status(strata_driver_get_info(&(strata_driver_info){0}), STRATA_ERROR_FORKED);
        child_status(strata_runtime_get(0, &(strata_runtime *){NULL}), STRATA_ERROR_FORKED);
        child_status(strata_driver_choose("auto"), STRATA_ERROR_FORKED);
        child_status(strata_driver_count_calls(), STRATA_ERROR_FORKED);
        test_child_leave(0);
    }
    int status;
    child_check(waitpid(child, &status, 0) == child);
    const int go = open(in_pause_folder(path, "go"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    child_check(go >= 0);
    close(go);
    pthread_join(thread, NULL);
    child_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child_ok(opened);
}

/* ---- exit handlers ---- */

static void use_while_the_driver_lives(void)
{
    strata_block block;
    child_ok(strata_runtime_allocate(scene.runtime, 4096, scene.stream, &block));
    child_ok(strata_runtime_deallocate(scene.runtime, &block));
    child_ok(strata_runtime_reap_pending(scene.runtime));
    child_ok(strata_launch_cancel(&scene.ready));
    child_ok(strata_launch_end(&scene.ready));
    child_ok(strata_launch_begin(&scene.ready, scene.runtime, scene.stream, STRATA_LAUNCH_STRICT));
    child_ok(strata_launch_use(&scene.ready, &scene.block, STRATA_ACCESS_READ));
    child_ok(strata_launch_preflight(&scene.ready));
}

/* Makes one call first, so that it is the one that finds the driver gone, and then all of them. */
static void use_when_the_driver_is_gone(void)
{
    const char *first = getenv("STRATA_TEST_FIRST_CALL");
    size_t which = first ? (size_t)atoi(first) : 0;
    for (size_t i = 0; i < CALL_COUNT; i++) {
        size_t next = (which + i) % CALL_COUNT;
        if (calls[next].kind == END)
            continue; /* they free what they are given: last, and once */
        check_call(next, calls[next].kind == FREE ? STRATA_SUCCESS : STRATA_ERROR_SHUT_DOWN);
    }
    for (size_t i = 0; i < CALL_COUNT; i++)
        if (calls[i].kind == END)
            check_call(i, STRATA_SUCCESS);
    child_ok(strata_runtime_deallocate(scene.runtime, &(strata_block){0}));
    child_status(strata_runtime_allocate(scene.runtime, 0, NULL, &out), STRATA_ERROR_SHUT_DOWN);
    child_check(strata_runtime_bytes_outstanding(scene.runtime) == 0);
    test_child_leave(0);
}

static void exit_handlers_may_use_everything(void)
{
    child_check(atexit(use_when_the_driver_is_gone) == 0);
    set_scene(strata_runtime_default_stack());
    child_check(atexit(use_while_the_driver_lives) == 0);
    exit(1); /* unless the last handler says otherwise */
}

/* ---- loading ---- */

static size_t count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    size_t count = 0;
    child_check(tasks != NULL);
    for (const struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

typedef struct loaded {
    strata_status (*get)(int, strata_runtime **);
    strata_status (*allocate)(strata_runtime *, size_t, CUstream, strata_block *);
    strata_status (*deallocate_on)(strata_runtime *, const strata_block *, CUstream);
    const strata_error *(*last_error)(void);
    strata_runtime *runtime;
    strata_status status;
} loaded;

static void find_function(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    child_check(symbol != NULL);
    memcpy(pointer, &symbol, sizeof symbol);
}

static void *use_loaded(void *data)
{
    loaded *all = data;
    strata_block block;
    all->status = all->allocate(all->runtime, 4096, CU_STREAM_PER_THREAD, &block);
    if (all->status == STRATA_SUCCESS)
        all->status = all->deallocate_on(all->runtime, &block, CU_STREAM_PER_THREAD);
    return NULL;
}

static void library_stays_when_it_was_loaded(void)
{
    const char *path = getenv("STRATA_TEST_LIBRARY");
    if (!path)
        exit(77);
    loaded all = {.status = STRATA_ERROR_IO};
    size_t before = count_threads();
    child_check(!dlopen(path, RTLD_NOW | RTLD_NOLOAD));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        printf("%s\n", dlerror());
    child_check(library != NULL);
    find_function(library, "strata_runtime_get", &all.get);
    find_function(library, "strata_runtime_allocate", &all.allocate);
    find_function(library, "strata_runtime_deallocate_on", &all.deallocate_on);
    find_function(library, "strata_last_error", &all.last_error);
    child_check(all.last_error()->status == STRATA_SUCCESS);
    child_check(count_threads() == before);
    child_check(all.get(0, &all.runtime) == STRATA_SUCCESS);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        child_check(pthread_create(&thread, NULL, use_loaded, &all) == 0);
        pthread_join(thread, NULL);
        child_check(all.status == STRATA_SUCCESS);
    }
    child_check(dlclose(library) == 0);
    child_check(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL);
    strata_runtime *again = NULL;
    child_check(all.get(0, &again) == STRATA_SUCCESS && again == all.runtime);
}

/* ---- threads ---- */

static strata_block_id short_life_id;

static void *live_shortly(void *data)
{
    (void)data;
    strata_block blocks[3];
    for (size_t i = 0; i < 3; i++)
        if (strata_runtime_allocate(scene.runtime, 256, NULL, &blocks[i]) != STRATA_SUCCESS)
            return NULL;
    short_life_id = blocks[2].id;
    for (size_t i = 0; i < 3; i++)
        strata_runtime_deallocate(scene.runtime, &blocks[i]);
    return NULL;
}

static void threads_that_end_give_their_slots_back(void)
{
    uint32_t highest = 0;
    child_ok(strata_runtime_get(0, &scene.runtime));
    for (size_t i = 0; i < test_effort(SHORT_LIVES, 200); i++) {
        pthread_t thread;
        short_life_id = (strata_block_id){0};
        child_check(pthread_create(&thread, NULL, live_shortly, NULL) == 0);
        pthread_join(thread, NULL);
        child_check(short_life_id.generation != 0);
        highest = short_life_id.slot > highest ? short_life_id.slot : highest;
        if (i % 16 == 0)
            child_ok(strata_runtime_reap_pending(scene.runtime));
    }
    child_check(highest < 1000);
    child_ok(strata_runtime_reap_pending(scene.runtime));
    child_check(strata_runtime_bytes_outstanding(scene.runtime) == 0);
}

/* The program has begun the driver without Strata. */
static void child_forked_behind_another_start_is_refused(void)
{
    CUresult (*init)(unsigned);
    int status;
    void *library = dlopen(getenv("STRATA_SIM_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "cuInit") : NULL;
    child_check(found);
    memcpy(&init, &found, sizeof init);
    child_check(init(0) == CUDA_SUCCESS);
    const pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        child_status(strata_driver_get_info(&(strata_driver_info){0}), STRATA_ERROR_FORKED);
        child_check(strstr(strata_last_error()->message, "forked after the driver had started"));
        child_status(strata_runtime_get(0, &(strata_runtime *){NULL}), STRATA_ERROR_FORKED);
        test_child_leave(0);
    }
    child_check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child_ok(strata_driver_get_info(&(strata_driver_info){0}));
}

/* ---- in the parent ---- */

static void run_on_both(const char *scenario, const char *more)
{
    const char *const async[] = {"STRATA_STACK=async", more, NULL};
    const char *const direct[] = {"STRATA_STACK=direct", more, NULL};
    test_child_run(scenario, async);
    test_child_run(scenario, direct);
}

static void a_forked_child_is_refused_by_every_call_and_the_parent_goes_on(void **state)
{
    (void)state;
    run_on_both("forked_child_is_refused", NULL);
}

static void a_child_forked_before_the_first_use_can_use_the_device(void **state)
{
    (void)state;
    run_on_both("child_forked_before_the_first_use_works", NULL);
}

static void children_forked_while_threads_hold_locks_are_refused_and_do_not_hang(void **state)
{
    (void)state;
    run_on_both("children_forked_in_the_middle_of_work_do_not_hang", NULL);
}

static void a_thread_that_ends_in_a_forked_child_waits_for_no_lock(void **state)
{
    (void)state;
    run_on_both("forked_child_whose_thread_returns_ends", NULL);
}

static void a_child_forked_while_the_driver_opens_does_not_hang(void **state)
{
    (void)state;
    const char *shim = getenv("STRATA_SHIM_LIBRARY");
    if (!shim)
        skip();
    char choice[4200], pause[64], folder[] = "/tmp/strata-pause-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(choice, sizeof choice, "STRATA_DRIVER=%s", shim);
    snprintf(pause, sizeof pause, "STRATA_SHIM_PAUSE=%s", folder);
    const char *const changes[] = {choice, pause, NULL};
    test_child_run("child_forked_while_the_driver_opens_is_refused", changes);
    static const char *const files[] = {"paused", "go"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void a_child_forked_behind_the_programs_own_start_of_the_driver_is_refused(void **state)
{
    (void)state;
    if (!getenv("STRATA_SIM_LIBRARY"))
        skip();
    const char *const changes[] = {"STRATA_DRIVER=sim", NULL};
    test_child_run("child_forked_behind_another_start_is_refused", changes);
}

static void exit_handlers_use_everything_and_frees_succeed_when_the_driver_is_gone(void **state)
{
    (void)state;
    for (int i = 0; i < CALL_COUNT; i++) {
        char first[64];
        snprintf(first, sizeof first, "STRATA_TEST_FIRST_CALL=%d", i);
        run_on_both("exit_handlers_may_use_everything", first);
    }
}

static void a_loaded_library_starts_no_thread_and_is_never_unloaded(void **state)
{
    (void)state;
    run_on_both("library_stays_when_it_was_loaded", NULL);
}

static void thousands_of_short_threads_need_no_more_slots_than_a_few(void **state)
{
    (void)state;
    run_on_both("threads_that_end_give_their_slots_back", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(forked_child_is_refused),
        TEST_SCENARIO(child_forked_before_the_first_use_works),
        TEST_SCENARIO(children_forked_in_the_middle_of_work_do_not_hang),
        TEST_SCENARIO(forked_child_whose_thread_returns_ends),
        TEST_SCENARIO(child_forked_while_the_driver_opens_is_refused),
        TEST_SCENARIO(child_forked_behind_another_start_is_refused),
        TEST_SCENARIO(exit_handlers_may_use_everything),
        TEST_SCENARIO(library_stays_when_it_was_loaded),
        TEST_SCENARIO(threads_that_end_give_their_slots_back),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_is_refused_by_every_call_and_the_parent_goes_on),
        cmocka_unit_test(a_child_forked_before_the_first_use_can_use_the_device),
        cmocka_unit_test(children_forked_while_threads_hold_locks_are_refused_and_do_not_hang),
        cmocka_unit_test(a_thread_that_ends_in_a_forked_child_waits_for_no_lock),
        cmocka_unit_test(a_child_forked_while_the_driver_opens_does_not_hang),
        cmocka_unit_test(a_child_forked_behind_the_programs_own_start_of_the_driver_is_refused),
        cmocka_unit_test(exit_handlers_use_everything_and_frees_succeed_when_the_driver_is_gone),
        cmocka_unit_test(a_loaded_library_starts_no_thread_and_is_never_unloaded),
        cmocka_unit_test(thousands_of_short_threads_need_no_more_slots_than_a_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
