/* Shared memory: memfd_create(2), fcntl(2) F_ADD_SEALS. */
#include "service/isolated/shared_memory.h"

#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "service/isolated/descriptors.h"
#include "service/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static strata_status fail(const char *call, size_t bytes)
{
    const int error = errno;
    return strata_fail(error == ENOMEM || error == ENOSPC ? STRATA_ERROR_OUT_OF_HOST_MEMORY : STRATA_ERROR_IO,
                       "shared memory of %s for the worker of a device service: %s: %s%s", strata_size_text(bytes).text,
                       call, strerror(error), service_descriptor_advice(error));
}

/* Whether a file of that size exceeds the process's limit, for which the kernel would end it with SIGXFSZ. */
static bool is_above_limit(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur;
}

/* Errors leave nothing open. */
static strata_status make_file(size_t bytes, int *out)
{
    if (bytes > (size_t)INT64_MAX) {
        errno = ENOMEM;
        return fail("ftruncate", bytes);
    }
    if (is_above_limit(bytes)) {
        errno = EFBIG;
        return fail("ftruncate", bytes);
    }
    const int fd = strata_descriptor_move_up(memfd_create("strata", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return fail("memfd_create", bytes);
    if (ftruncate(fd, (off_t)bytes) == 0) {
        *out = fd;
        return STRATA_SUCCESS;
    }
    const strata_status status = fail("ftruncate", bytes);
    close(fd);
    return status;
}

size_t isolated_mapping_limit(void)
{
    enum { USUAL = 65530 };
    char text[32] = "";
    const int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return USUAL;
    const ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    const unsigned long long limit = length > 0 ? strtoull(text, NULL, 10) : 0;
    return limit ? (size_t)limit : USUAL;
}

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes > SIZE_MAX - page ? bytes : (bytes + page - 1) / page * page;
}

static strata_status make_memory(size_t size, isolated_memory *out)
{
    int fd = -1;
    strata_status status = make_file(size, &fd);
    if (status != STRATA_SUCCESS)
        return status;
    void *memory = MAP_FAILED;
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        status = fail("fcntl", size);
    else if ((memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        status = fail("mmap", size);
    if (status != STRATA_SUCCESS) {
        close(fd);
        return status;
    }
    madvise(memory, size, MADV_DONTFORK);
    isolated_descriptor_add(fd);
    *out = (isolated_memory){.bytes = memory, .size = size, .fd = fd};
    return STRATA_SUCCESS;
}

/* A forked child has no part of it: its bytes are the parent's. Errors are raised outside: the log callback is the
 * program's. */
strata_status isolated_memory_make(size_t bytes, isolated_memory *out)
{
    *out = (isolated_memory){.fd = -1};
    strata_error_suppress_begin();
    const isolated_change change = isolated_descriptors_begin();
    const strata_status status = make_memory(whole_pages(bytes), out);
    isolated_descriptors_end(change);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

void isolated_memory_close(isolated_memory *memory)
{
    if (memory->bytes)
        munmap(memory->bytes, memory->size);
    isolated_descriptor_close(memory->fd);
    *memory = (isolated_memory){.fd = -1};
}

static bool write_all(int fd, const unsigned char *content, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t wrote = pwrite(fd, content + at, bytes - at, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        at += (size_t)wrote;
    }
    return true;
}

strata_status isolated_memory_of(const void *content, size_t bytes, int *out)
{
    int fd = -1;
    strata_error_suppress_begin();
    const isolated_change change = isolated_descriptors_begin();
    strata_status status = make_file(bytes, &fd);
    isolated_descriptor_add(fd);
    isolated_descriptors_end(change);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status != STRATA_SUCCESS)
        return status;
    if (!write_all(fd, content, bytes) || fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_WRITE) != 0) {
        status = fail("write", bytes);
        isolated_descriptor_close(fd);
        return status;
    }
    *out = fd;
    return STRATA_SUCCESS;
}

bool isolated_memory_is_sealed(int fd, size_t bytes)
{
    struct stat facts;
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) &&
           facts.st_size >= 0 && (uint64_t)facts.st_size >= bytes;
}
