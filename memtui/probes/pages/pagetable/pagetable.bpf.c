// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Reads the accessed bits of one process from its page tables.
 *
 * An iterator over the memory mappings (VMAs) of a task: the kernel calls walk() once per mapping, in rising order of
 * address, with the mmap lock of the process held. Each page-table page (512 entries, 2 MiB of address space) is
 * copied in one read and reduced to 512 bits; only bits leave the kernel, and on request those tables whose pages other
 * processes may map, too. The program only reads, and a wrong address is an error code, never a crash. x86-64 and arm64
 * with pages of 4 KiB, and 4 or 5 levels of tables.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BLOCK_SHIFT 21 /* what one page-table page maps, and a page-middle leaf */
#define GIANT_SHIFT 30 /* what one page-middle table maps, and a page-upper leaf */
#define TOP_SHIFT 39
#define BLOCK (1ULL << BLOCK_SHIFT)
#define GIANT (1ULL << GIANT_SHIFT)

/*
 * Bits of a page-table entry. SPECIAL: zero page, device memory; no page frame that clear_refs would look at.
 * KIND tells a table from a leaf, together with PRESENT.
 */
#define E_PRESENT (1ULL << 0)
#ifdef __TARGET_ARCH_arm64
#define ACCESSED_SHIFT 10
#define E_WRITABLE (1ULL << 51)
#define E_KIND (1ULL << 1)
#define E_CONTIGUOUS (1ULL << 52)
#define SPECIAL_SHIFT 56
/*
 * Pages under PROT_NONE count as not there: kernels mark them in different bits, which older ones use for swap. Of 16
 * contiguous entries the processor may mark any one.
 */
#define E_UNCOMMON (E_CONTIGUOUS | 1ULL << SPECIAL_SHIFT)
#else
#define ACCESSED_SHIFT 5
#define E_WRITABLE (1ULL << 1)
#define E_KIND (1ULL << 7)
#define E_CONTIGUOUS 0ULL
#define SPECIAL_SHIFT 9
/* PROT_NONE (mprotect, NUMA balancing) clears PRESENT and sets GLOBAL. */
#define E_PROT_NONE (1ULL << 8)
#define E_UNCOMMON (E_PROT_NONE | 1ULL << SPECIAL_SHIFT)
#endif
#define E_ACCESSED (1ULL << ACCESSED_SHIFT)

/* Flags of a mapping; the values are the same in every kernel that can load this. */
#define VMA_SHARED 0x00000008ULL
#define VMA_PFNMAP 0x00000400ULL
#define VMA_LOCKED 0x00002000ULL
#define VMA_IO 0x00004000ULL
#define VMA_HUGETLB 0x00400000ULL
#define VMA_MIXEDMAP 0x10000000ULL

/* Of the mapping that a page frame names: it is not that of a file. */
#define MAPPING_ANONYMOUS 1ULL

/* Of a task: a thread of the kernel. It borrows address spaces. */
#define TASK_KTHREAD 0x00200000U

/* What a slot describes, in the two lowest bits of its key. */
#define KIND_BLOCK 0
#define KIND_HUGE 1
#define KIND_GIANT 2
/* Beside a kind: the next one of `tables` is the table of this block. */
#define KEY_TABLE 4
#define KEY_SHIFT 3

/* Of a mapping: that it has no name, that it is the heap, that it is the stack or perhaps the heap. */
#define NAME_NONE 0
#define NAME_HEAP 1
#define NAME_OTHER 2

/* What can be asked about pages. */
#define ABOUT_NOTED 0	 /* accessed, though the accessed bit is not set: somebody else took it away */
#define ABOUT_ACCESSED 1 /* the accessed bit is set */
#define ABOUT_LARGE 2	 /* a part of a folio of several pages, mapped page by page */
#define ABOUT_BOTH 3	 /* accessed or noted: while a walk runs, a bit may be taken between this and the walk */
#define ABOUT_PASSED_OVER 4 /* the accessed bit is set, and MADV_COLD passes over the page */

struct walk_state {
	/* Set by the reader before a walk. */
	u64 tgid;	   /* 0: the link already names the task */
	u64 low;	   /* only addresses in [low, high) */
	u64 high;
	u64 want_resident; /* fill `resident`, and emit blocks without an accessed page, too */
	u64 physical_mask; /* the bits of an entry that hold a physical address */
	u64 search_steps;  /* how many GiB below the page-global directory the direct map may begin */
	u64 direct_map;	   /* where the kernel maps physical address 0; found when 0, kept by the reader */
	u64 second_look;   /* somebody else clears accessed bits: find the page frames and ask them about leaves */
	u64 page_frames;   /* the struct page of physical address 0; found when 0, kept by the reader */
	u64 asked;	   /* questions to answer, or extents to read */
	u64 about;	   /* what is asked */
	u64 known_address; /* a word of the first process that is walked, ... */
	u64 known_word;	   /* ... what it holds, ... */
	u64 known_physical; /* ... and on arm64 where it lies */
	u64 want_tables;   /* put out the tables of blocks with an accessed, or noted, page that others may map, too */
	u64 tables_used;   /* where the next table goes; the reader begins anew at 0 */
	u64 leave_anonymous; /* so many mappings of that kind are noted, and not read */
	u64 parts;	   /* blocks are dealt out into so many parts at random, and two parts are read; 0: all are */
	u64 parts_seed;	   /* of that, */
	u64 part_read;	   /* ... the part whose marks are wanted, ... */
	u64 part_next;	   /* ... and the one that will be cleared */
	u64 users_of;	   /* count the users of this address space in whatever process; 0: of the first one that is met */
	u64 one_process;   /* no other one is read: who accessed a page that others map, too, is not known */
	/* Set by the walk. */
	u64 used;	   /* slots filled */
	u64 skipped;	   /* slots that did not fit */
	u64 tables_lost;   /* tables that did not fit */
	u64 errors;	   /* reads that failed */
	u64 vmas;	   /* mappings met */
	u64 foreign;	   /* mappings of another address space: the kernel ignored the link's task */
	u64 hugetlb;	   /* mappings whose accessed bits nobody can clear, in its map */
	u64 changed;	   /* blocks left out because their page table was exchanged while it was read */
	u64 anonymous;	   /* mappings of that kind, in its map */
	u64 mm;		   /* identity of the address space, opaque */
	u64 exec_id;	   /* rises with every exec */
	u64 next;	   /* first address not looked at yet */
	u64 mappings;	   /* those in their map */
	u64 users;	   /* mm_users: tasks that use the address space, and whoever looks into it just now */
	u64 held;	   /* tasks that use it and are traced by the process that reads */
	u64 running;	   /* tasks that use it and are not */
	u64 in_doubt;	   /* pages that were perhaps touched: somebody took accessed bits of several pages, or processes */
};

struct slot {
	u64 key;	 /* (address >> 21) << 3 | KEY_TABLE | kind */
	u64 accessed[8]; /* of a leaf: whether, and the entry */
};

struct bitmap {
	u64 word[8];
};

/* Addresses of a mapping. */
struct extent {
	u64 start;
	u64 end;
};

/* What a line of /proc/PID/maps is made of; a file that was renamed meanwhile is not noticed. */
struct mapping {
	u64 start;
	u64 end;
	u64 flags;
	u64 name; /* NAME_..., or a number that is another one for another name */
};

/* Of an answer about noted pages: the next one of `tables` is the table of this block. */
#define ANSWER_TABLE (1ULL << 63)

/* About pages of one block. Answered in place: what stays set is a yes. */
struct question {
	u64 block;
	u64 page[8];
};

struct table {
	u64 entry[512];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk_state);
} state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct bitmap);
} resident SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct table);
} tables SEC(".maps"); /* whole, so that the reader finds the page frames; nothing is put out unless it is asked for */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct question);
} questions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct mapping);
} mappings SEC(".maps"); /* all of them */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct extent);
} anonymous SEC(".maps"); /* private anonymous memory that reclaim could take; set by the reader for walk_extents */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, struct extent);
} hugetlb SEC(".maps"); /* mappings whose accessed bits nobody can clear */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct table);
} scratch SEC(".maps");

struct walker {
	u64 address; /* next to look at */
	u64 end;
	u64 start;  /* of the mapping */
	u64 shared; /* others may write to it, too */
	u64 pgd;
	u64 direct_map;
	u64 mask;
	u64 five_levels;
	u64 giant;  /* number of the GiB whose page-middle table is known, plus 1 */
	u64 middle; /* address of that table */
	u64 frozen; /* hugetlb: report residency only */
	u64 unlocked; /* nothing holds khugepaged off */
	struct walk_state *state;
};

struct search {
	struct walker walker;
	u64 found;
};

/* Whether an entry of a table above the last maps memory itself. On x86 also under PROT_NONE and while it is split. */
static __always_inline bool is_leaf(u64 entry)
{
#ifdef __TARGET_ARCH_arm64
	return (entry & (E_PRESENT | E_KIND)) == E_PRESENT;
#else
	return entry & E_KIND;
#endif
}

static __always_inline u64 read_entry(struct walk_state *s, u64 table, u64 index)
{
	u64 value = 0;

	if (bpf_probe_read_kernel(&value, sizeof(value), (void *)(table + (index & 511) * 8)))
		s->errors++;
	return value;
}

/* The entry of the page-global directory, or below it with five levels, that covers 512 GiB around the address. */
static __always_inline u64 top_entry(struct walker *w, u64 address)
{
	u64 entry;

	if (!w->five_levels)
		return read_entry(w->state, w->pgd, address >> TOP_SHIFT);
	entry = read_entry(w->state, w->pgd, address >> 48);
	if (!(entry & E_PRESENT))
		return 0;
	return read_entry(w->state, w->direct_map + (entry & w->mask), address >> TOP_SHIFT);
}

/* The entry of the page-middle table, or the larger leaf, that maps the address; 0 when there is none. */
static __always_inline u64 middle_entry(struct walker *w, u64 address)
{
	u64 entry = top_entry(w, address);

	if (!(entry & E_PRESENT))
		return 0;
	entry = read_entry(w->state, w->direct_map + (entry & w->mask), address >> GIANT_SHIFT);
	if (!(entry & E_PRESENT) || is_leaf(entry))
		return entry;
	return read_entry(w->state, w->direct_map + (entry & w->mask), address >> BLOCK_SHIFT);
}

/* The physical address behind a kernel address; 0 when there is none. */
static __always_inline u64 translate(struct walker *w, u64 address)
{
	u64 entry = top_entry(w, address);

	if (!(entry & E_PRESENT))
		return 0;
	entry = read_entry(w->state, w->direct_map + (entry & w->mask), address >> GIANT_SHIFT);
	if (!(entry & E_PRESENT))
		return 0;
	if (is_leaf(entry))
		return (entry & w->mask & ~(GIANT - 1)) + (address & (GIANT - 1));
	entry = read_entry(w->state, w->direct_map + (entry & w->mask), address >> BLOCK_SHIFT);
	if (!(entry & E_PRESENT))
		return 0;
	if (is_leaf(entry))
		return (entry & w->mask & ~(BLOCK - 1)) + (address & (BLOCK - 1));
	entry = read_entry(w->state, w->direct_map + (entry & w->mask), address >> 12);
	return entry & E_PRESENT ? (entry & w->mask) + (address & 4095) : 0;
}

/*
 * One candidate for the begin of the direct map. On x86 the page-global directory lies in the direct map and maps it, so
 * a candidate can be right when walking with it translates the directory's address back to itself. That rests upon one
 * entry, and behind a wrong candidate lie the data of programs: a page of small integers has many that would do. So the
 * reader's word has to be found, too. On arm64 the tables of a process map its own memory only.
 */
static long try_direct_map(u32 i, void *context)
{
	struct search *search = context;
	struct walker *w = &search->walker;
	u64 word = 0, physical;

	w->direct_map = (w->pgd & ~(GIANT - 1)) - ((u64)i << GIANT_SHIFT);
	physical = translate(w, w->state->known_address);
#ifdef __TARGET_ARCH_arm64
	if (physical != w->state->known_physical)
		return 0;
#else
	if (w->direct_map + translate(w, w->pgd) != w->pgd)
		return 0;
#endif
	if (bpf_probe_read_kernel(&word, sizeof(word), (void *)(w->direct_map + physical)) ||
	    word != w->state->known_word)
		return 0;
	search->found = w->direct_map;
	return 1;
}

/*
 * Where the kernel keeps its array of struct page. It does not export that, but it lists the struct page of each page
 * of a task's stack: with the physical address behind the stack, one gives the begin of the array and the next one
 * proves it.
 */
static __always_inline u64 find_page_frames(struct walker *w, struct task_struct *task)
{
	u64 size = bpf_core_type_size(struct page), stack, pages, base;

#ifdef __TARGET_ARCH_arm64
	return 0; /* the tables of a process do not map its stack in the kernel */
#endif
	if (!bpf_core_field_exists(task->stack_vm_area))
		return 0;
	stack = (u64)BPF_CORE_READ(task, stack_vm_area, addr);
	pages = (u64)BPF_CORE_READ(task, stack_vm_area, pages);
	if (!stack || !pages)
		return 0;
	base = read_entry(w->state, pages, 0) - (translate(w, stack) >> 12) * size;
	return base == read_entry(w->state, pages, 1) - (translate(w, stack + 4096) >> 12) * size ? base : 0;
}

struct frame {
	u64 flags;
	u64 compound_head; /* bit 0: not the first page of its folio */
};

/* The address of the struct page behind an entry of a page table. */
static __always_inline u64 frame_of(struct walker *w, u64 entry)
{
	return w->state->page_frames + ((entry & w->mask) >> 12) * bpf_core_type_size(struct page);
}

static __always_inline bool read_frame(struct walker *w, u64 entry, struct frame *frame)
{
	return !bpf_probe_read_kernel(frame, sizeof(*frame), (void *)frame_of(w, entry));
}

/* Whether a page is one of several of its folio. */
static __always_inline bool is_one_of_several(const struct frame *frame)
{
	return frame->compound_head & 1 || frame->flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1;
}

/* The same of the page behind an entry of a page table. Unknown counts as yes. */
static __noinline bool is_large(struct walker *w, u64 entry)
{
	struct frame frame = {};

	return !read_frame(w, entry, &frame) || is_one_of_several(&frame);
}

/*
 * Whether another process maps the page behind an entry, too, or this one maps it twice. Not for parts of large folios,
 * whose pages need not be counted one by one.
 */
__noinline u64 is_mapped_again(u64 frame)
{
	s32 more = 0; /* mappings besides the first */

	if (!bpf_core_field_exists(struct page, _mapcount))
		return 0;
	return !bpf_probe_read_kernel(&more, sizeof(more), (void *)(frame + bpf_core_field_offset(struct page, _mapcount))) &&
	       more > 0;
}

static __always_inline bool mapped_again(struct walker *w, u64 entry)
{
	return is_mapped_again(frame_of(w, entry));
}

/*
 * Whether MADV_COLD passes over the page behind an entry, though it is anonymous memory: another process maps it, too,
 * or it is one of several of a folio that is mapped page by page. The processor cannot write to memory that several
 * processes have since a fork. Unknown counts as yes.
 */
static __noinline bool is_passed_over(struct walker *w, u64 entry, bool leaf)
{
	u64 at = frame_of(w, entry), mapping = 0;
	bool writable = entry & E_WRITABLE;
	struct frame frame = {};

	if (!read_frame(w, entry, &frame))
		return true;
	if (frame.compound_head & 1)
		at = frame.compound_head - 1;
	if (bpf_core_field_exists(struct page, mapping) &&
	    !bpf_probe_read_kernel(&mapping, sizeof(mapping), (void *)(at + bpf_core_field_offset(struct page, mapping))) &&
	    !(mapping & MAPPING_ANONYMOUS))
		return false;
	if (leaf)
		return !writable;
	if (is_one_of_several(&frame))
		return true;
	return !writable && (!bpf_core_field_exists(struct page, _mapcount) || mapped_again(w, entry));
}

#define NOTED 1
#define PERHAPS_NOTED 2 /* this page, or others of its folio, or by another process */

/*
 * Whether another observer (DAMON, page_idle) has cleared the accessed bit of this page since the last clear: the
 * kernel then leaves a note in the page frame, and clear_refs takes the note away together with the bit. A folio of
 * several pages has one note for all of them: good for a leaf, which maps the folio whole, and a doubt about each page
 * that is mapped by itself. A page that several processes map has one note for all of them, too: a doubt where only
 * one of them is read, and else the set of all of them has the page.
 */
static __noinline u64 noted(struct walker *w, u64 entry, bool leaf)
{
	struct frame frame = {};
	u64 noted = NOTED;

	if (!bpf_core_enum_value_exists(enum pageflags, PG_young) || !read_frame(w, entry, &frame))
		return 0;
	if (leaf) {
		if (frame.compound_head & 1)
			return 0;
	} else if (frame.compound_head & 1) {
		noted = PERHAPS_NOTED;
		if (bpf_probe_read_kernel(&frame, sizeof(frame), (void *)(frame.compound_head - 1)))
			return 0;
	} else if (frame.flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1) {
		noted = PERHAPS_NOTED;
	}
	if (!(frame.flags >> bpf_core_enum_value(enum pageflags, PG_young) & 1))
		return 0;
	if (noted == NOTED && !leaf && w->state->one_process && mapped_again(w, entry))
		noted = PERHAPS_NOTED;
	return noted;
}

/*
 * One load each time it is named: left alone, the compiler keeps 64 entries alive from one loop to the next, which the
 * stack of 512 bytes does not hold.
 */
static __always_inline u64 load(const u64 *entry)
{
	return *(const volatile u64 *)entry;
}

static __always_inline u64 present(u64 e)
{
#ifndef __TARGET_ARCH_arm64
	e |= e >> 8 & 1;
#endif
	return e & ~(e >> SPECIAL_SHIFT) & 1;
}

static __always_inline u64 gather_contiguous(const u64 *entries)
{
	u64 bits = 0;

#pragma unroll
	for (int i = 0; i < 64; i++) {
		u64 e = load(&entries[i]);

		bits |= (e >> 52 & e & 1) << i;
		barrier_var(bits);
	}
	return bits;
}

/* Contiguous entries are one translation: with one of them the 16 are accessed. */
static __always_inline u64 joined(u64 accessed, u64 contiguous)
{
	u64 any = accessed & contiguous;

	any |= any >> 8;
	any |= any >> 4;
	any |= any >> 2;
	any |= any >> 1;
	return accessed | ((any & 0x0001000100010001ULL) * 0xffff & contiguous);
}

/* 64 entries to 64 bits: accessed, present and not special. `common` loses the bits that an entry beside them lacks. */
static __always_inline u64 gather_accessed(const u64 *entries, u64 *common)
{
	u64 any = 0, all = ~0ULL, bits = 0;

#pragma unroll
	for (int i = 0; i < 64; i++) {
		u64 e = load(&entries[i]);

		any |= e;
		all &= e;
		/* In this order: sorted into a tree, all 64 would be alive at once. */
		barrier_var(any);
		barrier_var(all);
	}
	if (!(any & E_ACCESSED))
		return 0;
	*common &= all;
	if (any & E_UNCOMMON) {
#pragma unroll
		for (int i = 0; i < 64; i++) {
			u64 e = load(&entries[i]);

			bits |= ((e >> ACCESSED_SHIFT) & present(e)) << i;
		}
		return any & E_CONTIGUOUS ? joined(bits, gather_contiguous(entries)) : bits;
	}
	if ((all & (E_PRESENT | E_ACCESSED)) == (E_PRESENT | E_ACCESSED))
		return ~0ULL;
	/* What is left is mostly ordinary memory, four at a time: PRESENT gathers in four bits, ACCESSED in four others. */
#pragma unroll
	for (int i = 0; i < 64; i += 4) {
		const u64 both = E_PRESENT | E_ACCESSED;
		u64 four = load(&entries[i]) & both;

		four |= (load(&entries[i + 1]) & both) << 1;
		four |= (load(&entries[i + 2]) & both) << 2;
		four |= (load(&entries[i + 3]) & both) << 3;
		bits |= ((four >> ACCESSED_SHIFT) & four & 15) << i;
	}
	return bits;
}

static __always_inline u64 gather_present(const u64 *entries)
{
	u64 bits = 0;

#pragma unroll
	for (int i = 0; i < 64; i++)
		bits |= present(load(&entries[i])) << i;
	return bits;
}

/* The next free slot, or NULL when none is left; that is counted, so nothing is lost silently. */
static __always_inline struct slot *next_slot(struct walk_state *s)
{
	u32 index = s->used;
	struct slot *slot = bpf_map_lookup_elem(&slots, &index);

	if (!slot) {
		s->skipped++;
		return NULL;
	}
	return slot;
}

static __always_inline void emit_leaf(struct walk_state *s, u64 address, u64 entry, u64 accessed, u64 kind)
{
	struct slot *slot;

	if (!accessed && !s->want_resident)
		return;
	slot = next_slot(s);
	if (!slot)
		return;
	slot->key = (address >> BLOCK_SHIFT) << KEY_SHIFT | kind;
	slot->accessed[0] = !!accessed;
	slot->accessed[1] = entry;
	s->used++;
}

static __always_inline u64 is_accessed_leaf(struct walker *w, u64 entry)
{
	u64 found;

	if (w->frozen)
		return 0;
	if (entry & E_ACCESSED)
		return 1;
	if (!w->state->page_frames || !w->state->second_look)
		return 0;
	/* The page frame's number lies above the bits that a leaf uses for itself. */
	found = noted(w, entry & ~(BLOCK - 1), true);
	/*
	 * The note is the folio's and not this process's: where another one may map it, too (files, shared memory, copies
	 * since a fork), it says nothing of who touched it.
	 */
	if (found && (w->shared || !(entry & E_WRITABLE))) {
		w->state->in_doubt += BLOCK >> 12;
		return 0;
	}
	return found;
}

struct gathering {
	struct table *table;
	struct slot *slot;
	struct bitmap *bitmap; /* NULL: residency is not asked for */
	u64 all;
	u64 common; /* bits that are set in every entry of a word with an accessed page */
};

#define GATHERED 1	    /* the slot is filled */
#define GATHERED_ACCESSED 2 /* with an accessed page */
#define GATHERED_UNWRITABLE 4 /* and an entry beside accessed ones does not allow writing */

/* One word of 64 pages. A callback, because the verifier looks at it once and not eight times. */
static long gather_word(u32 i, void *context)
{
	struct gathering *g = context;
	u64 bits;

	if (i >= 8)
		return 1;
	bits = gather_accessed(&g->table->entry[i * 64], &g->common);
	g->slot->accessed[i] = bits;
	g->all |= bits;
	if (g->bitmap)
		g->bitmap->word[i] = gather_present(&g->table->entry[i * 64]);
	return 0;
}

/*
 * The table in `scratch` to the bits of slot `index`, and of `resident`. Returns GATHERED_...
 *
 * Global, like the functions below that are not static: the verifier looks at a global function once for a program, and
 * at a static one once for each state of its callers, which were three quarters of all that it looked at.
 */
__noinline u64 gather_table(u32 index, u32 want_resident)
{
	struct gathering g = { .common = ~0ULL };
	u32 zero = 0;

	g.table = bpf_map_lookup_elem(&scratch, &zero);
	g.slot = bpf_map_lookup_elem(&slots, &index);
	if (want_resident)
		g.bitmap = bpf_map_lookup_elem(&resident, &index);
	if (!g.table || !g.slot || (want_resident && !g.bitmap))
		return 0;
	bpf_loop(8, gather_word, &g, 0);
	return GATHERED | (g.all ? GATHERED_ACCESSED : 0) | (g.common & E_WRITABLE ? 0 : GATHERED_UNWRITABLE);
}

/* The accessed pages in word `i` of the table in `scratch`. */
__noinline u64 accessed_in_word(u32 i)
{
	u32 zero = 0;
	u64 unused = 0;
	struct table *table = bpf_map_lookup_elem(&scratch, &zero);

	return table && i < 8 ? gather_accessed(&table->entry[i * 64], &unused) : 0;
}

/*
 * Private memory that is writable is mapped by nobody else: whoever shares it, since a fork or of a file, has to take a
 * copy first. So a table is of interest only with an entry that is not, or where it belongs to other mappings, too.
 */
static __always_inline bool may_be_shared(struct walker *w, u64 address, u64 gathered)
{
	return w->shared || gathered & GATHERED_UNWRITABLE || address < w->start || address + BLOCK > w->end;
}

/* The table in `scratch` to the next one of `tables`. */
__noinline u64 put_table(void)
{
	u32 zero = 0, index;
	struct walk_state *s = bpf_map_lookup_elem(&state, &zero);
	struct table *table = bpf_map_lookup_elem(&scratch, &zero), *place;

	if (!s || !table)
		return 0;
	index = s->tables_used;
	place = bpf_map_lookup_elem(&tables, &index);
	if (!place || bpf_probe_read_kernel(place, sizeof(*place), table)) {
		s->tables_lost++;
		return 0;
	}
	s->tables_used++;
	return KEY_TABLE;
}

static __always_inline void emit_table(struct walker *w, u64 address, u64 entry)
{
	struct walk_state *s = w->state;
	u32 zero = 0, index = s->used;
	struct table *table = bpf_map_lookup_elem(&scratch, &zero);
	struct slot *slot;
	u64 gathered;

	if (!table)
		return;
	if (bpf_probe_read_kernel(table, sizeof(*table), (void *)(w->direct_map + (entry & w->mask)))) {
		s->errors++;
		return;
	}
	/* A table that was taken away meanwhile (a huge page was made of it) may hold anything. */
	if ((read_entry(s, w->middle, address >> BLOCK_SHIFT) ^ entry) & (w->mask | E_PRESENT | E_KIND)) {
		s->changed++;
		return;
	}
	slot = next_slot(s);
	if (!slot)
		return;
	gathered = gather_table(index, !!s->want_resident);
	if (!gathered) {
		s->skipped++;
		return;
	}
	slot->key = (address >> BLOCK_SHIFT) << KEY_SHIFT | KIND_BLOCK;
	if (s->want_tables && gathered & GATHERED_ACCESSED && may_be_shared(w, address, gathered))
		slot->key |= put_table();
	/* A block without an accessed page leaves its slot to the next one. */
	if (gathered & GATHERED_ACCESSED || s->want_resident)
		s->used++;
}

/* Whether a block is in one of the two parts. The reader deals the blocks out in the same way (block_sample.py). */
static __always_inline bool is_in_parts(struct walk_state *s, u64 block)
{
	u64 hash = (block ^ s->parts_seed) * 0x9e3779b97f4a7c15ULL, part;

	hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9ULL;
	part = (hash >> 32) % s->parts;
	return part == s->part_read || part == s->part_next;
}

/* Of a lock: a thread has it for writing. */
#define WRITER_LOCKED 1UL

/*
 * Whether another process has the lock of the mappings for writing. This process has it while it clears mapped files, and
 * makes no huge pages. Not known of real-time kernels, which have another lock.
 */
static __always_inline bool others_write(struct walk_state *s)
{
	struct mm_struct *mm = (void *)s->mm;
	struct task_struct *owner;

	if (!bpf_core_field_exists(mm->mmap_lock.count))
		return false;
	if (!(BPF_CORE_READ(mm, mmap_lock.count.counter) & WRITER_LOCKED))
		return false;
	/* The lowest bits are flags. Nobody: it is being taken, or given back, and then what was made is there. */
	owner = (void *)(BPF_CORE_READ(mm, mmap_lock.owner.counter) & ~7UL);
	return owner && (u64)BPF_CORE_READ(owner, tgid) != bpf_get_current_pid_tgid() >> 32;
}

/*
 * The entry above a block that had none: a huge page may be in the making there. The kernel takes the table away, copies
 * the pages, and puts the huge page in, all with the lock for writing. So if nobody has the lock, the entry is there by
 * now, or there was none. That counts once in a walk: one huge page at a time is made, however many blocks are empty.
 */
static __noinline u64 missing_entry(struct walker *w, u64 address)
{
	struct walk_state *s = w->state;

	if (s->changed)
		return 0;
	if (!others_write(s))
		return read_entry(s, w->middle, address >> BLOCK_SHIFT);
	s->changed++;
	return 0;
}

static long step(u32 i, void *context)
{
	struct walker *w = context;
	struct walk_state *s = w->state;
	u64 address = w->address, giant = address >> GIANT_SHIFT, entry;

	if (address >= w->end)
		return 1;
	if (w->giant != giant + 1) {
		entry = top_entry(w, address);
		if (!(entry & E_PRESENT)) {
			w->address = ((address >> TOP_SHIFT) + 1) << TOP_SHIFT;
			return 0;
		}
		entry = read_entry(s, w->direct_map + (entry & w->mask), giant);
		if (is_leaf(entry) || !(entry & E_PRESENT)) {
			/* clear_refs does not reach leaves of this size, so their accessed bit says nothing. */
			if (is_leaf(entry))
				emit_leaf(s, giant << GIANT_SHIFT, entry, 0, KIND_GIANT);
			w->address = (giant + 1) << GIANT_SHIFT;
			return 0;
		}
		w->giant = giant + 1;
		w->middle = w->direct_map + (entry & w->mask);
	}
	w->address = ((address >> BLOCK_SHIFT) + 1) << BLOCK_SHIFT;
	if (s->parts && !is_in_parts(s, address >> BLOCK_SHIFT))
		return 0;
	entry = read_entry(s, w->middle, address >> BLOCK_SHIFT);
	if (!entry && w->unlocked)
		entry = missing_entry(w, address);
	/* x86's bit of a leaf is never set in a swap or migration entry. */
	if (is_leaf(entry))
		emit_leaf(s, address, entry, is_accessed_leaf(w, entry), KIND_HUGE);
	else if (entry & E_PRESENT)
		emit_table(w, address, entry);
	return 0;
}

/* What of [start, end) the reader asked for and no earlier range has reported, in whole blocks. */
static __always_inline void read_range(struct walker *w, u64 start, u64 end)
{
	struct walk_state *s = w->state;
	u64 first;

	if (start < s->low)
		start = s->low;
	if (end > s->high)
		end = s->high;
	first = start & ~(BLOCK - 1);
	/* Ranges that share a block: the first one has reported it. */
	if (first < s->next)
		first = s->next;
	if (first >= end)
		return;
	w->address = first;
	w->end = end;
	bpf_loop(1 << 23, step, w, 0);
	s->next = w->address;
}

struct answering {
	struct walker *walker;
	struct table *table;
	struct question *question;
	u64 about;
	u64 word;  /* which of the eight of the question */
	u64 asked; /* bits of it that are left */
	u64 yes;
	u64 shared; /* another process maps a noted page, too: the reader wants to know which frame that is */
};

/* The number of the only bit that is set. */
__noinline u32 bit_number(u64 bit)
{
	return (!!(bit & 0xffffffff00000000ULL) << 5) | (!!(bit & 0xffff0000ffff0000ULL) << 4) |
	       (!!(bit & 0xff00ff00ff00ff00ULL) << 3) | (!!(bit & 0xf0f0f0f0f0f0f0f0ULL) << 2) |
	       (!!(bit & 0xccccccccccccccccULL) << 1) | !!(bit & 0xaaaaaaaaaaaaaaaaULL);
}

/* The next bit that is asked about. A callback, because older verifiers go through all 64 turns of a loop. */
static long answer_page(u32 i, void *context)
{
	struct answering *a = context;
	u64 bit = a->asked & -a->asked, entry, found, k = 0;

	if (!bit)
		return 1;
	a->asked ^= bit;
	k = bit_number(bit) + a->word * 64;
	/* The compiler knows that this is below 512 and would leave the bound out; older verifiers do not know it. */
	barrier_var(k);
	entry = a->table->entry[k & 511];
	if (!present(entry))
		return 0;
	/* Under PROT_NONE the number of the page frame is kept inverted. */
	if (!(entry & E_PRESENT)) {
		if (a->about == ABOUT_LARGE || a->about == ABOUT_PASSED_OVER)
			a->yes |= bit;
		return 0;
	}
	if (a->about == ABOUT_LARGE || a->about == ABOUT_PASSED_OVER) {
		if (a->about == ABOUT_LARGE ? is_large(a->walker, entry) : is_passed_over(a->walker, entry, false))
			a->yes |= bit;
		return 0;
	}
	found = noted(a->walker, entry, false);
	if (found == NOTED) {
		a->yes |= bit;
		if (a->walker->state->want_tables)
			a->shared |= mapped_again(a->walker, entry);
	} else if (found)
		a->walker->state->in_doubt++;
	return 0;
}

static long answer_word(u32 i, void *context)
{
	struct answering *a = context;
	u64 asked, accessed = 0;

	if (i >= 8)
		return 1;
	asked = a->question->page[i];
	if (!asked)
		return 0;
	a->yes = 0;
	if (a->about != ABOUT_LARGE)
		accessed = accessed_in_word(i);
	if (a->about == ABOUT_ACCESSED) {
		a->yes = asked & accessed;
	} else {
		if (a->about == ABOUT_BOTH)
			a->yes = asked & accessed;
		a->word = i;
		a->asked = a->about == ABOUT_PASSED_OVER ? asked & accessed : asked & ~accessed;
		bpf_loop(64, answer_page, a, 0);
	}
	a->question->page[i] = a->yes;
	return 0;
}

/* Where it is wanted, the table in `scratch` for the answer to question `i`. */
__noinline u64 put_noted_table(u32 i, u64 wanted)
{
	struct question *question = bpf_map_lookup_elem(&questions, &i);

	if (!question || !wanted || !put_table())
		return 0;
	question->block |= ANSWER_TABLE;
	return 1;
}

static long answer(u32 i, void *context)
{
	struct walker *w = context;
	struct answering a = { .walker = w, .about = w->state->about };
	u32 zero = 0;
	u64 entry;

	a.question = bpf_map_lookup_elem(&questions, &i);
	a.table = bpf_map_lookup_elem(&scratch, &zero);
	if (!a.question || !a.table)
		return 1;
	entry = middle_entry(w, a.question->block << BLOCK_SHIFT);
	if (!(entry & E_PRESENT) || is_leaf(entry)) {
		bool stays = is_leaf(entry) && entry & E_ACCESSED;

		if (stays && a.about == ABOUT_PASSED_OVER)
			stays = is_passed_over(w, entry & ~(BLOCK - 1) | entry & E_WRITABLE, true);
		if (!stays || (a.about != ABOUT_ACCESSED && a.about != ABOUT_PASSED_OVER))
			__builtin_memset(a.question->page, 0, sizeof(a.question->page));
		return 0;
	}
	if (bpf_probe_read_kernel(a.table, sizeof(*a.table), (void *)(w->direct_map + (entry & w->mask)))) {
		w->state->errors++;
		return 0;
	}
	/*
	 * A table that was taken away meanwhile may hold anything. What it was asked stays a yes where that is the careful
	 * answer: a mark that is perhaps there, a folio that is perhaps large.
	 */
	if ((middle_entry(w, a.question->block << BLOCK_SHIFT) ^ entry) & (w->mask | E_PRESENT | E_KIND)) {
		w->state->changed++;
		if (a.about == ABOUT_NOTED || a.about == ABOUT_BOTH)
			__builtin_memset(a.question->page, 0, sizeof(a.question->page));
		return 0;
	}
	bpf_loop(8, answer_word, &a, 0);
	put_noted_table(i, a.shared);
	return 0;
}

static __always_inline void note(void *map, u64 *count, u64 start, u64 end)
{
	u32 index = *count;
	struct extent *extent = bpf_map_lookup_elem(map, &index);

	if (!extent)
		return;
	extent->start = start;
	extent->end = end;
	(*count)++;
}

/* With CONFIG_ANON_VMA_NAME. */
struct vm_area_struct___named {
	void *anon_name;
} __attribute__((preserve_access_index));

/* One step of a hash (FNV-1a, by words of 64 bits). */
static __always_inline u64 mixed(u64 hash, u64 value)
{
	return (hash ^ value) * 0x100000001b3ULL;
}

/* The kernel's own order: the file and what the program called it, then what it is for (vdso, heap, stack). */
static __always_inline u64 mapping_name(struct vm_area_struct *vma, struct mm_struct *mm)
{
	struct vm_area_struct___named *named = (void *)vma;
	u64 file = (u64)BPF_CORE_READ(vma, vm_file), given = 0, heap, brk, stack;

	if (bpf_core_field_exists(named->anon_name))
		given = (u64)BPF_CORE_READ(named, anon_name);
	if (file | given)
		return mixed(mixed(0, file), given);
	if (vma->vm_ops)
		return (u64)BPF_CORE_READ(vma, vm_ops);
	heap = BPF_CORE_READ(mm, start_brk);
	brk = BPF_CORE_READ(mm, brk);
	stack = BPF_CORE_READ(mm, start_stack);
	if (vma->vm_start < brk && vma->vm_end > heap)
		return NAME_HEAP;
	/* Kernels differ in what they call that which touches the heap. */
	if ((vma->vm_start <= brk && vma->vm_end >= heap) || (vma->vm_start <= stack && vma->vm_end >= stack))
		return NAME_OTHER;
	return NAME_NONE;
}

static __always_inline void note_mapping(struct walk_state *s, struct vm_area_struct *vma, struct mm_struct *mm)
{
	u32 index = s->mappings;
	struct mapping *mapping = bpf_map_lookup_elem(&mappings, &index);

	if (!mapping)
		return;
	mapping->start = vma->vm_start;
	mapping->end = vma->vm_end;
	mapping->flags = vma->vm_flags;
	mapping->name = mapping_name(vma, mm);
	s->mappings++;
}

/* Private anonymous memory that reclaim could take, where the reader wants to look. */
static __always_inline bool is_anonymous(struct walk_state *s, struct vm_area_struct *vma)
{
	return !vma->vm_ops && !(vma->vm_flags & (VMA_HUGETLB | VMA_LOCKED | VMA_IO | VMA_MIXEDMAP)) &&
	       vma->vm_start < s->high && vma->vm_end > s->low;
}

SEC("iter/task_vma")
int walk(struct bpf_iter__task_vma *context)
{
	struct task_struct *task = context->task;
	struct vm_area_struct *vma = context->vma;
	struct mm_struct *mm;
	struct walk_state *s;
	u64 flags, end;
	u32 zero = 0;

	if (!task || !vma)
		return 0;
	s = bpf_map_lookup_elem(&state, &zero);
	if (!s || (s->tgid && s->tgid != (u64)task->tgid))
		return 0;
	mm = vma->vm_mm;
	if (s->mm && s->mm != (u64)mm) {
		s->foreign++;
		return 0;
	}
	s->mm = (u64)mm;
	s->vmas++;
	s->exec_id = task->self_exec_id;
	note_mapping(s, vma, mm);

	/* The verifier forbids arithmetic on a typed pointer, hence no plain mm->pgd. */
	struct walker w = {
		.pgd = (u64)BPF_CORE_READ(mm, pgd),
		.mask = s->physical_mask,
		.state = s,
	};
	/* With five levels the direct map lies below 0xffff000000000000, with four levels above. */
	w.five_levels = (w.pgd >> 48) != 0xffff;
	if (!s->direct_map) {
		struct search search = { .walker = w };

		bpf_loop(s->search_steps, try_direct_map, &search, 0);
		s->direct_map = search.found;
		s->errors = 0; /* wrong candidates are expected to fail */
	}
	if (!s->direct_map)
		return 0;
	w.direct_map = s->direct_map;
	if (!s->page_frames) {
		s->page_frames = find_page_frames(&w, task);
		s->errors = 0; /* not to know them is no error */
	}

	/*
	 * Device memory has no page frames, so clear_refs leaves it out; in a block that it shares with other
	 * mappings its entries are special. hugetlb pages are left out by clear_refs, too: resident, never accessed.
	 */
	flags = vma->vm_flags;
	if (flags & VMA_PFNMAP)
		return 0;
	w.frozen = flags & VMA_HUGETLB;
	w.start = vma->vm_start;
	w.shared = flags & VMA_SHARED;
	end = vma->vm_end;
	if (is_anonymous(s, vma) && s->anonymous < s->leave_anonymous)
		end = vma->vm_start;
	/* Older verifiers go through the loop once for every way that leads to it, so all is asked once more after it. */
	barrier_var(end);
	read_range(&w, vma->vm_start, end);
	barrier();
	if (vma->vm_flags & VMA_HUGETLB)
		note(&hugetlb, &s->hugetlb, vma->vm_start, vma->vm_end);
	else if (is_anonymous(s, vma))
		note(&anonymous, &s->anonymous, vma->vm_start, vma->vm_end);
	return 0;
}

/*
 * The memory of a task, once: the other threads and mappings have nothing to add; other processes are met where the
 * kernel ignores the link's task. False: there is nothing to do.
 */
static __always_inline bool enter(struct walker *w, struct walk_state *s, struct task_struct *task)
{
	u64 mm;

	if (!s || (s->tgid && s->tgid != (u64)task->tgid))
		return false;
	mm = (u64)BPF_CORE_READ(task, mm);
	if (!mm || s->mm == mm)
		return false;
	if (s->mm) {
		s->foreign++;
		return false;
	}
	s->mm = mm;
	s->vmas = 1;
	s->exec_id = task->self_exec_id;
	w->pgd = (u64)BPF_CORE_READ(task, mm, pgd);
	w->direct_map = s->direct_map;
	w->mask = s->physical_mask;
	w->five_levels = (w->pgd >> 48) != 0xffff;
	w->state = s;
	return s->direct_map;
}

static __always_inline void answer_all(struct walker *w)
{
	if (w->state->page_frames || w->state->about == ABOUT_ACCESSED)
		bpf_loop(w->state->asked, answer, w, 0);
}

/* Answers questions about pages of a process that stands still, in all its users. Takes no lock. */
SEC("iter/task")
int ask(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct walker w = {};
	struct walk_state *s;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&state, &zero);
	if (task && enter(&w, s, task))
		answer_all(&w);
	return 0;
}

/* The same of one that may run: at its first mapping, with the lock. The others are passed over. */
SEC("iter/task_vma")
int ask_locked(struct bpf_iter__task_vma *context)
{
	struct task_struct *task = context->task;
	struct walker w = {};
	struct walk_state *s;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&state, &zero);
	if (task && context->vma && enter(&w, s, task))
		answer_all(&w);
	return 0;
}

/*
 * Counts who uses an address space: tasks that the calling process traces, and others. Another process (CLONE_VM, a
 * child of vfork before its exec) is met when every task is visited.
 */
SEC("iter/task")
int count_users(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct walk_state *s;
	u32 zero = 0;
	u64 mm;

	s = bpf_map_lookup_elem(&state, &zero);
	if (!task || !s || (s->tgid && s->tgid != (u64)task->tgid) || task->flags & TASK_KTHREAD)
		return 0;
	mm = (u64)BPF_CORE_READ(task, mm);
	if (!mm)
		return 0; /* it has ended */
	if (s->users_of && s->users_of != mm)
		return 0;
	if (s->mm && s->mm != mm) {
		s->foreign++;
		return 0;
	}
	s->mm = mm;
	s->vmas = 1;
	s->users = BPF_CORE_READ(task, mm, mm_users.counter);
	s->mappings = BPF_CORE_READ(task, mm, map_count);
	if (task->ptrace && (u64)BPF_CORE_READ(task, parent, tgid) == bpf_get_current_pid_tgid() >> 32)
		s->held++;
	else
		s->running++;
	return 0;
}

static long read_extent(u32 i, void *context)
{
	struct extent *extent = bpf_map_lookup_elem(&anonymous, &i);
	struct walker *w = context;

	if (!extent)
		return 1;
	w->start = extent->start;
	w->unlocked = 1;
	read_range(w, extent->start, extent->end);
	return 0;
}

/*
 * What walk() has left out, in a process that stands still in all its users, so that no page table of it is freed: without
 * the lock, which the kernel holds against all readers while it clears mapped files. khugepaged exchanges a table for a
 * huge page and keeps it; that is seen afterwards, and in between, when there is neither, by its lock.
 */
SEC("iter/task")
int walk_extents(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct walker w = {};
	struct walk_state *s;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&state, &zero);
	if (!task || !enter(&w, s, task))
		return 0;
	bpf_loop(s->asked, read_extent, &w, 0);
	/* It was killed meanwhile: what was read may be anything. */
	if ((u64)BPF_CORE_READ(task, mm) != s->mm)
		s->errors++;
	return 0;
}
