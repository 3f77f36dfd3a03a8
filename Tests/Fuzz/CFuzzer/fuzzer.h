// libFuzzer as a library: the runtime of -sanitize=fuzzer has this function, and no header for it.
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*target)(const uint8_t *data, size_t size));
