/* The frames of CPython in call stacks: function, file and line of the Python code that the calling thread runs.
 *
 * The interpreter's lock is neither held nor taken. Libraries release it before they ask for memory; PyTorch's cache
 * asks with its own mutex held, for which another thread may wait that holds the interpreter's lock, so that taking it
 * would be a deadlock. What the calling thread runs stands still while it is in a call, and its frames keep the code
 * objects alive. So frames are read where they lie, and no reference is counted.
 *
 * One exception: an interpreter that ends takes other threads' frames away. Then a copy fails, or its object is of no
 * known type, and the frames end there (python_objects.c). */
#define _GNU_SOURCE
#include "adapters/exec/python.h"

#include "adapters/exec/loader.h"
#include "core/base/call_stack.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_BEFORE = 12, /* native frames that always keep their room before the interpreter's */
    FRAME_BYTES = 104,
    PAGE = 4096,   /* or a part of one */
    OF_C_CODE = 3, /* owner of a frame of no Python code */
};

/* ---- the interpreter ---- */

static exec_python found; /* written once, before `ready` */
static _Atomic bool ready;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;

static int contains_state_function(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    exec_python *to = data;
    uintptr_t function;
    memcpy(&function, &to->thread_state, sizeof function);
    to->code_begin = UINTPTR_MAX;
    to->code_end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        to->code_begin = begin < to->code_begin ? begin : to->code_begin;
        to->code_end = begin + part->p_memsz > to->code_end ? begin + part->p_memsz : to->code_end;
    }
    return function >= to->code_begin && function < to->code_end;
}

/* Finds an interpreter whose symbols the whole process sees: it is the program, or a library that the program needs. */
static bool look_for(exec_python *to)
{
    const char *(*version)(void);
    unsigned major = 0, minor = 0;
    void *const state = exec_loader_dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    void *const text = state ? exec_loader_dlsym(RTLD_DEFAULT, "Py_GetVersion") : NULL;
    if (!text)
        return false;
    memcpy(&version, &text, sizeof version);
    memcpy(&to->thread_state, &state, sizeof state);
    to->code_type = (uintptr_t)exec_loader_dlsym(RTLD_DEFAULT, "PyCode_Type");
    to->text_type = (uintptr_t)exec_loader_dlsym(RTLD_DEFAULT, "PyUnicode_Type");
    if (sscanf(version(), "%u.%u", &major, &minor) == 2)
        to->layout = exec_python_layout_of(major, minor);
    return to->layout && to->code_type && to->text_type && dl_iterate_phdr(contains_state_function, to);
}

static int read_loads(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = object->dlpi_adds;
    return 1;
}

/* Returns the interpreter, or NULL; looks again if something was loaded since the last look. A thread that finds
 * another one looking goes without: that one may wait for the loader, whose lock this one may hold. */
static const exec_python *find_python(void)
{
    static unsigned long long looked_at; /* guarded by `finding` */
    unsigned long long loads = 0;
    if (atomic_load_explicit(&ready, memory_order_acquire))
        return &found;
    dl_iterate_phdr(read_loads, &loads);
    if (pthread_mutex_trylock(&finding) != 0)
        return NULL;
    if (loads != looked_at && !atomic_load(&ready)) {
        looked_at = loads;
        atomic_store_explicit(&ready, look_for(&found), memory_order_release);
    }
    pthread_mutex_unlock(&finding);
    return atomic_load(&ready) ? &found : NULL;
}

void exec_python_look(void)
{
    find_python();
}

/* ---- frames ---- */

/* What a frame runs. */
typedef struct running {
    uintptr_t code;     /* address of the code object */
    size_t instruction; /* bytes from the begin of its instructions */
} running;

/* The last page that was read: a thread's frames lie close together, and a copy takes a system call. */
typedef struct page_reader {
    uintptr_t page;
    bool filled;
    unsigned char bytes[PAGE];
} page_reader;

static bool read_near(page_reader *reader, uintptr_t from, unsigned char *to, size_t bytes)
{
    while (bytes) {
        const uintptr_t page = from & ~(uintptr_t)(PAGE - 1);
        const size_t at = from - page, here = bytes < PAGE - at ? bytes : PAGE - at;
        if (!reader->filled || reader->page != page)
            reader->filled = exec_python_copy(page, reader->bytes, PAGE);
        if (!reader->filled)
            return false;
        reader->page = page;
        memcpy(to, reader->bytes + at, here);
        to += here;
        from += here;
        bytes -= here;
    }
    return true;
}

static uintptr_t word_at(const unsigned char *bytes, size_t offset)
{
    uintptr_t word;
    memcpy(&word, bytes + offset, sizeof word);
    return word;
}

static size_t instruction_of(const exec_python_layout *layout, const unsigned char *frame)
{
    int32_t number;
    if (!layout->counts_instructions)
        return word_at(frame, layout->frame_instruction) - word_at(frame, layout->frame_code) - layout->code_begin;
    memcpy(&number, frame + layout->frame_instruction, sizeof number);
    return 2 * (size_t)(number > 0 ? number : 0);
}

/* The calling thread's innermost frame. 0: it runs no Python code. */
static uintptr_t innermost(const exec_python *python)
{
    const exec_python_layout *layout = python->layout;
    const uintptr_t state = (uintptr_t)python->thread_state();
    uintptr_t frame = 0;
    if (!state || !exec_python_copy(state + layout->state_frames, &frame, sizeof frame))
        return 0;
    if (layout->behind_c_frame && (!frame || !exec_python_copy(frame + layout->c_frame_frame, &frame, sizeof frame)))
        return 0;
    return frame;
}

static size_t walk(const exec_python *python, running *to, size_t most)
{
    const exec_python_layout *layout = python->layout;
    page_reader reader = {.filled = false};
    unsigned char frame[FRAME_BYTES];
    size_t count = 0, steps = 0;
    uintptr_t at = innermost(python);
    for (; at && count < most && steps++ < 4 * most; at = word_at(frame, layout->frame_previous)) {
        if (!read_near(&reader, at, frame, layout->frame_bytes))
            break;
        if (!layout->frame_owner || frame[layout->frame_owner] != OF_C_CODE)
            to[count++] = (running){word_at(frame, layout->frame_code), instruction_of(layout, frame)};
    }
    return count;
}

/* Reads the code objects in one system call; if that fails, each by one. What cannot be read is zeros. */
static void read_codes(const running *from, size_t count, unsigned char (*to)[EXEC_PYTHON_CODE])
{
    uintptr_t places[STRATA_CALL_STACK_DEPTH];
    for (size_t i = 0; i < count; i++)
        places[i] = from[i].code;
    if (exec_python_copy_many(places, count, to, EXEC_PYTHON_CODE))
        return;
    for (size_t i = 0; i < count; i++)
        if (!exec_python_copy(places[i], to[i], EXEC_PYTHON_CODE))
            memset(to[i], 0, EXEC_PYTHON_CODE);
}

static size_t read_frames(const exec_python *python, void **to, size_t most)
{
    running all[STRATA_CALL_STACK_DEPTH];
    unsigned char codes[STRATA_CALL_STACK_DEPTH][EXEC_PYTHON_CODE];
    const size_t walked = walk(python, all, most);
    size_t count = 0;
    if (walked)
        read_codes(all, walked, codes);
    for (size_t i = 0; i < walked; i++) {
        void *frame = exec_python_name(python, all[i].code, codes[i], all[i].instruction);
        if (frame)
            to[count++] = frame;
    }
    return count;
}

/* Puts Python's frames in the place of the interpreter's own native frames and those behind them, which say no more. */
size_t exec_python_add_frames(void **frames, size_t depth, size_t room)
{
    const exec_python *python = find_python();
    void *own[STRATA_CALL_STACK_DEPTH];
    size_t before = 0;
    if (!python)
        return depth;
    while (before < depth &&
           ((uintptr_t)frames[before] < python->code_begin || (uintptr_t)frames[before] >= python->code_end))
        before++;
    const size_t kept = before < MOST_BEFORE ? before : MOST_BEFORE;
    const size_t count = read_frames(python, own, room - kept);
    if (!count)
        return depth;
    before = before < room - count ? before : room - count;
    memcpy(frames + before, own, count * sizeof own[0]);
    return before + count;
}
