/* The stand-in for cuBLAS under another version number: its other functions are found in the library that this one
 * needs. */
__attribute__((visibility("default"))) int cublasGetProperty(int which, int *value);

int cublasGetProperty(int which, int *value)
{
    *value = which == 0 ? VERSION : which == 1 ? 4 : 5;
    return 0;
}
