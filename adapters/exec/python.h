/* The process's CPython, if there is one: its frames for call stacks, and what its libraries keep. */
#ifndef STRATA_ADAPTERS_EXEC_PYTHON_H
#define STRATA_ADAPTERS_EXEC_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- frames (python_frames.c) ---- */

/* Looks for the interpreter before several threads ask at once. */
void exec_python_look(void);

/* A source for strata_call_stack_set_source: the native frames up to the interpreter, then its own. */
size_t exec_python_add_frames(void **frames, size_t depth, size_t room);

/* ---- objects (python_objects.c) ---- */

/* Where a minor version of CPython keeps what is read: offsets in bytes. */
typedef struct exec_python_layout {
    unsigned minor;
    size_t state_frames;      /* in a thread's state: its innermost frame */
    bool behind_c_frame;      /* the state has a struct instead, in which ... */
    size_t c_frame_frame;     /* ... the innermost frame is here */
    size_t frame_bytes;       /* as many of a frame are copied */
    size_t frame_code;        /* the object that runs */
    size_t frame_previous;    /* the caller */
    size_t frame_instruction; /* see counts_instructions */
    size_t frame_owner;       /* 0: every frame is Python's */
    bool counts_instructions; /* the instruction is a number, not an address; the lines are those of PEP 626 */
    size_t code_line, code_table, code_file, code_name, code_begin;
    size_t text_bytes, wide_text_bytes; /* headers of texts in ASCII, and in others */
} exec_python_layout;

/* NULL: of an unknown version. */
const exec_python_layout *exec_python_layout_of(unsigned major, unsigned minor);

/* Constant after it was found. */
typedef struct exec_python {
    const exec_python_layout *layout;
    void *(*thread_state)(void);    /* PyGILState_GetThisThreadState */
    uintptr_t code_type, text_type; /* addresses of PyCode_Type, PyUnicode_Type */
    uintptr_t code_begin, code_end; /* of the object that has the interpreter */
} exec_python;

/* Copies memory of this process. False: it cannot be read; no fault. */
bool exec_python_copy(uintptr_t from, void *to, size_t bytes);

/* `bytes` from each of at most 32 places, one behind the other. False: not all could be read. */
bool exec_python_copy_many(const uintptr_t *from, size_t count, void *to, size_t bytes);

enum { EXEC_PYTHON_TEXT = 320 }; /* bytes of a text that are read at most */

/* A text as UTF-8; of a long one its end. Returns its length; 0: it is no text. */
size_t exec_python_read_text(const exec_python *python, uintptr_t object, char *to, size_t room);

/* ---- names (python_names.c) ---- */

enum { EXEC_PYTHON_CODE = 144 }; /* bytes of a code object that are read */

/* Returns a frame for call stacks, named by function, file and line, of the code object at an address, of which a copy
 * is given. NULL: there is no code object, or its texts cannot be read. */
void *exec_python_name(const exec_python *python, uintptr_t address, const unsigned char *code, size_t instruction);

/* ---- lines (python_objects.c) ---- */

/* Returns the line of the instruction at byte `at` of a code object, from its table of lines. 0: none. */
int exec_python_line(const exec_python_layout *layout, uintptr_t table, int first_line, size_t at);

#endif
