/* Accesses of the host to pinned memory: declared, or caught by page protection.
 *
 * In page mode pinned memory is an unnamed file, mapped twice: for the program, with protected pages, and for the
 * simulation. Submitting work that may touch the allocation shuts its pages; the host's first access to each faults, is
 * checked, and opens the page for reading or for writing. Nothing is missed: what the host did before a submission
 * comes before that work, and two accesses of the host are no race.
 *
 * The handler may take the lock and allocate: neither the simulation nor the allocator touches the program's view, so
 * the signal comes from the program itself. */
#include "check/check.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096 };

typedef struct sim_page_watch {
    struct sim_page_watch *previous;
    struct sim_page_watch *next;
    sim_block *block;
    size_t bytes;             /* whole pages */
    bool open;                /* some page is */
    unsigned char readable[]; /* by page: the host may read it */
} sim_page_watch;

/* Guarded by sim.lock. */
static sim_page_watch *watches;
static struct sigaction before; /* the handler behind ours */

/* ---- catching ---- */

static sim_page_watch *watch_at(uint64_t address)
{
    sim_page_watch *watch = watches;
    while (watch && address - watch->block->address >= watch->bytes)
        watch = watch->next;
    return watch;
}

static bool is_write(const sim_page_watch *watch, size_t page, const ucontext_t *context)
{
#if defined(__x86_64__)
    enum { FAULT_WRITES = 2 };
    (void)watch;
    (void)page;
    return (context->uc_mcontext.gregs[REG_ERR] & FAULT_WRITES) != 0;
#else
    (void)context;
    return watch->readable[page] != 0;
#endif
}

static bool catch_access(uint64_t address, const ucontext_t *context)
{
    sim_page_watch *watch = watch_at(address);
    if (!watch)
        return false;
    const sim_block *block = watch->block;
    size_t page = (size_t)(address - block->address) / PAGE;
    bool write = is_write(watch, page, context);
    uint64_t begin = block->address + page * PAGE;
    uint64_t end = block->address + block->bytes;
    sim_check_host_access(begin, end - begin < PAGE ? end - begin : PAGE, write ? SIM_WRITES : SIM_READS);
    watch->readable[page] = 1;
    watch->open = true;
    return mprotect((void *)(uintptr_t)begin, PAGE, write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
        sigaction(number, &before, NULL);
    else
        before.sa_handler(number);
}

static void handle(int number, siginfo_t *info, void *context)
{
    int error = errno;            /* the interrupted program's */
    const bool took = sim_lock(); /* else the thread has it: a host kernel faults, or a signal handler in a call */
    bool ours = catch_access((uint64_t)(uintptr_t)info->si_addr, context);
    if (took)
        pthread_mutex_unlock(&sim.lock);
    errno = error;
    if (!ours)
        pass_on(number, info, context);
}

/* Puts the handler before one installed since. It runs on the stack of the access, since a report with source lines may
 * need more than an alternate stack has; on that one only if the handler behind it does, which may serve stack
 * overflows. */
static bool install(void)
{
    struct sigaction now;
    if (sigaction(SIGSEGV, NULL, &now) != 0)
        return false;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle)
        return true;
    struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER | (now.sa_flags & SA_ONSTACK)};
    sigemptyset(&ours.sa_mask);
    before = now;
    return sigaction(SIGSEGV, &ours, NULL) == 0;
}

/* ---- shutting ---- */

static void shut(sim_page_watch *watch)
{
    if (watch->open && mprotect((void *)(uintptr_t)watch->block->address, watch->bytes, PROT_NONE) == 0) {
        watch->open = false;
        for (size_t page = 0; page < watch->bytes / PAGE; page++)
            watch->readable[page] = 0;
    }
}

static bool in_block(const sim_block *block, uint64_t address)
{
    return address - block->address < block->bytes;
}

static bool may_touch(const sim_op *op, const sim_block *block)
{
    switch (op->kind) {
    case SIM_OP_COPY:
        return in_block(block, op->work.copy.from.address) || in_block(block, op->work.copy.to.address);
    case SIM_OP_FILL:
        return in_block(block, op->work.fill.address);
    case SIM_OP_ALLOCATE:
    case SIM_OP_FREE:
    case SIM_OP_MARK:
        return false;
    default:
        return true;
    }
}

void sim_host_pages_close(const sim_op *op)
{
    for (sim_page_watch *watch = watches; watch; watch = watch->next)
        if (may_touch(op, watch->block))
            shut(watch);
}

/* ---- pinned memory ---- */

static bool map_twice(size_t bytes, void **user, void **ours)
{
    int file = memfd_create("strata-sim-pinned", MFD_CLOEXEC);
    if (file < 0)
        return false;
    *user = MAP_FAILED;
    *ours = MAP_FAILED;
    if (sim_file_resize(file, bytes)) {
        *user = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        *ours = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    if (*user != MAP_FAILED && *ours != MAP_FAILED)
        return true;
    if (*user != MAP_FAILED)
        munmap(*user, bytes);
    if (*ours != MAP_FAILED)
        munmap(*ours, bytes);
    return false;
}

bool sim_check_watches_pages(void)
{
    return sim.checking && (sim_check.modes & STRATA_SIM_CHECK_PAGES) != 0;
}

bool sim_check_watch(sim_block *block, uint64_t asked)
{
    size_t bytes = (size_t)sim_round_up(asked, PAGE);
    void *user;
    void *ours;
    sim_page_watch *watch = calloc(1, sizeof *watch + bytes / PAGE);
    if (!watch || !install() || !map_twice(bytes, &user, &ours)) {
        free(watch);
        return false;
    }
    watch->block = block;
    watch->bytes = bytes;
    watch->open = true;
    watch->next = watches;
    if (watch->next)
        watch->next->previous = watch;
    watches = watch;
    block->watch = watch;
    block->address = (uint64_t)(uintptr_t)user;
    block->memory = ours;
    return true;
}

void sim_check_unwatch(sim_block *block)
{
    sim_page_watch *watch = block->watch;
    munmap((void *)(uintptr_t)block->address, watch->bytes);
    munmap(block->memory, watch->bytes);
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        watches = watch->next;
    if (watch->next)
        watch->next->previous = watch->previous;
    free(watch);
    block->watch = NULL;
}

/* ---- declared ---- */

CUresult sim_host_access_declare(const void *address, size_t bytes, sim_access_kind touch)
{
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = sim.phase == SIM_RUNNING ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    if (result == CUDA_SUCCESS)
        sim_check_host_access((uint64_t)(uintptr_t)address, bytes, touch);
    pthread_mutex_unlock(&sim.lock);
    return result;
}
