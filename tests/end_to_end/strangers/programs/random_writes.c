/* Writes to pages of 4 KiB in random order, and says what they hold in the end. Arguments: steps, MiB (64). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int main(int count, char **words)
{
	size_t pages = (count > 2 ? atol(words[2]) : 64) * 256;
	long steps = count > 1 ? atol(words[1]) : 1;
	unsigned char *memory = aligned_alloc(4096, pages * 4096);
	uint64_t random = 88172645463325252ULL, sum = 0;
	struct timespec now;

	madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < pages; i++)
		memory[i * 4096] = 1;
	for (long i = 0; i < steps * 1000000; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		memory[random % pages * 4096]++;
		if (i % 100000)
			continue;
		clock_gettime(CLOCK_MONOTONIC, &now);
		fprintf(stderr, "step %ld at %lld\n", i / 100000, now.tv_sec * 1000000000LL + now.tv_nsec);
	}
	for (size_t i = 0; i < pages; i++)
		sum = sum * 31 + memory[i * 4096];
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
