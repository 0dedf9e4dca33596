/* Libraries whose calls do not come here. */
#ifndef STRATA_ADAPTERS_EXEC_BLIND_H
#define STRATA_ADAPTERS_EXEC_BLIND_H

/* Calls visit with the path of each object of the process that is bound to a hooked function past its hook: by
 * RTLD_DEEPBIND, by its own symbol of that name, or because another library has patched it. */
void exec_blind_visit(void (*visit)(const char *object, void *data), void *data);

/* Calls visit with each function of the driver that an object is linked to and called, and that is neither hooked nor
 * known to need no hook. Such calls cannot be counted. */
void exec_blind_visit_uncovered(void (*visit)(const char *symbol, void *data), void *data);

#endif
