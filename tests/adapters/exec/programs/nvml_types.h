/* What NVML's functions fill in. */
#ifndef STRATA_TESTS_EXEC_NVML_TYPES_H
#define STRATA_TESTS_EXEC_NVML_TYPES_H

typedef struct memory_1 {
    unsigned long long total, free, used;
} memory_1;

typedef struct memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_2;

typedef struct process_1 {
    unsigned process;
    unsigned long long used;
} process_1;

typedef struct process_2 {
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_2;

typedef struct detail {
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_bytes;
} detail;

typedef struct details {
    unsigned version, mode, count;
    detail *processes;
} details;

typedef struct attributes {
    unsigned counts[8];
    unsigned long long mebibytes;
} attributes;

#endif
