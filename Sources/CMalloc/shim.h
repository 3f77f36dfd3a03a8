#pragma once
// How glibc's allocator behaves: mallopt(3) is not in Swift's Glibc module.
#include <malloc.h>
