/*
 * The target of benchmarks.reuse_truth: touches pages in a known order, at a known rate.
 *
 * paced_touches ORDER PAGES ROUND_MS [FIRST+COUNT ...]: ORDER is ring, zigzag, uniform, zipf (popularity 1/rank; PAGES
 * is a power of two), or another name with ranges of pages, which are walked through one after the other, over and over.
 * It touches as many pages in ROUND_MS as there are, evenly over the time for which it runs: what it
 * misses while it is stopped, or has no CPU, is not caught up with. On SIGTERM it prints how many ms a round
 * really took, and ends: with status 1 and no line if it touched no page yet. A page is one of 4 KiB.
 */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t state = 88172645463325252ULL;

static double random_unit(void) /* xorshift64* */
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (double)((state * 2685821657736338717ULL) >> 11) / 9007199254740992.0;
}

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	static struct { long first, count; } ranges[256]; /* one page, which is touched all the time */
	int range_count = argc - 4, range = 0;
	long in_range = 0;
	if (argc < 4 || range_count > 256)
		return 2;
	const char *order = argv[1];
	long pages = atol(argv[2]), done = 0;
	double round_ms = atof(argv[3]), octaves = log2(pages + 1.0);
	for (int i = 0; i < range_count; i++) {
		int read = sscanf(argv[4 + i], "%ld+%ld", &ranges[i].first, &ranges[i].count);
		if (read != 2 || ranges[i].first < 0 || ranges[i].count < 1 || ranges[i].first + ranges[i].count > pages)
			return 2;
	}
	size_t bytes = (size_t)pages * 4096;
	volatile char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || pages < 2)
		return 1;
	madvise((void *)memory, bytes, MADV_NOHUGEPAGE);
	memset((void *)memory, 1, bytes);
	int zipf = !strcmp(order, "zipf"), uniform = !strcmp(order, "uniform"), zigzag = !strcmp(order, "zigzag");
	if (zipf && pages & (pages - 1))
		return 2;
	signal(SIGTERM, end);
	puts("ready");
	fflush(stdout);
	double begin_ms = now_ms(), last_ms = begin_ms, ran_ms = 0;
	while (!ended) {
		double this_ms = now_ms();
		ran_ms += this_ms - last_ms < 1 ? this_ms - last_ms : 1;
		last_ms = this_ms;
		long due = ran_ms * pages / round_ms;
		if (due <= done) {
			nanosleep(&(struct timespec){0, 200000}, NULL);
			continue;
		}
		for (; done < due; done++) {
			long page = done % pages;
			if (range_count) {
				page = ranges[range].first + in_range++;
				if (in_range == ranges[range].count) {
					in_range = 0;
					range = (range + 1) % range_count;
				}
			} else if (zigzag) {
				page = done % (2 * pages);
				page = page < pages ? page : 2 * pages - 1 - page;
			} else if (uniform) {
				page = random_unit() * pages;
			} else if (zipf) { /* no tables: they would be touched, too; popular pages lie anywhere */
				long rank = exp2(random_unit() * octaves) - 1;
				page = rank * 2654435761UL & (pages - 1);
			}
			memory[page * 4096]++;
		}
	}
	if (!done)
		return 1;
	printf("%f\n", (now_ms() - begin_ms) * pages / done);
	return 0;
}
