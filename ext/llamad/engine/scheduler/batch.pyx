# Owns: the batch and the budget of a step. Runs on the engine thread. It only decides; the slots are updated after the
# decode has succeeded (loop.pyx).
#
# The budget bounds the gap between a decoding slot's tokens while prompts are prefilled. Even if no slot decodes, a
# step is short enough that a vanished client or a new request is noticed soon. On the CPU, prefill_cpu.pyx says how
# long prefill may take, and may give a step to prefill or to decoding alone. With a GPU, prefill beside decoding slots
# is a separate decode, and prefill_gpu.pyx says how large it is.
#
# A prompt that is alone is cut at multiples of llama.cpp's ubatch, because logits depend on the shapes in which they
# were computed: an idle server then gives the same text as llama-server with the same -ub.
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from llamad.base.system cimport load_int
from llamad.engine.costs.scheduler cimport (
    FALL_RATE, FLASH_TILE, GPU_CHUNK_TOKENS_MIN, LEARN_RATE, RISE_RATE, SLOW_TOKEN_US,
)
from llamad.engine.kv.cells cimport cells_fit
from llamad.engine.kv.slots cimport (
    SLOT_DECODING, SLOT_PREFILLING, Slot, Slots, slot_is_recomputing, slot_is_replayed, slot_room, slot_shows_prompt,
    slot_until,
)
from llamad.engine.scheduler.adapter_turns cimport turns_learn
from llamad.engine.scheduler.fillers cimport fillers_choose
from llamad.engine.scheduler.padding cimport padding_choose, padding_fits
from llamad.engine.scheduler.plan cimport PROMPT_OUTPUTS_MAX, Plan, plan_has_output
from llamad.engine.scheduler.prefill_cpu cimport TURN_DECODE, TURN_PREFILL, prefill_cpu_learn, prefill_cpu_turn
from llamad.engine.scheduler.prefill_gpu cimport prefill_gpu_goes_first, prefill_gpu_learn, prefill_gpu_tokens
from llamad.engine.scheduler.prefill_order cimport order_begin, order_count, order_next
from llamad.engine.scheduler.token_costs cimport costs_learn
from llamad.protocol.row_ids cimport ROW_NON_CAUSAL, run_length


cdef int batch_init(Plan *plan, int32_t n_slots, int32_t batch_max, int32_t ubatch, int32_t tokens_max,
                    int32_t can_mix, int32_t has_device, int32_t can_separate) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    cdef size_t n = 2 * <size_t>batch_max  # two decodes
    cdef size_t i
    memset(plan, 0, sizeof(Plan))
    plan.batch_max = batch_max
    plan.ubatch = ubatch
    plan.rows_max = min(batch_max, n_slots + <int32_t>PROMPT_OUTPUTS_MAX)
    plan.tokens_max = tokens_max
    plan.can_mix = can_mix
    plan.has_device = has_device
    plan.can_separate = can_separate
    plan.prefill_room = min(ubatch, GPU_CHUNK_TOKENS_MIN)
    plan.batch.token = <int32_t *>malloc(n * sizeof(int32_t))
    plan.batch.pos = <int32_t *>malloc(n * sizeof(int32_t))
    plan.batch.n_seq_id = <int32_t *>malloc(n * sizeof(int32_t))
    plan.batch.seq_id = <int32_t **>malloc(n * sizeof(int32_t *))
    plan.batch.output = <int8_t *>calloc(n, 1)
    plan.seq_ids = <int32_t *>malloc(n * sizeof(int32_t))
    plan.is_decode = <int8_t *>calloc(n, 1)
    if (plan.batch.token == NULL or plan.batch.pos == NULL or plan.batch.n_seq_id == NULL
            or plan.batch.seq_id == NULL or plan.batch.output == NULL or plan.seq_ids == NULL
            or plan.is_decode == NULL):
        return -1
    for i in range(n):
        plan.batch.n_seq_id[i] = 1
        plan.batch.seq_id[i] = &plan.seq_ids[i]
    return 0


cdef void batch_free(Plan *plan) noexcept nogil:
    free(plan.batch.token)
    free(plan.batch.pos)
    free(plan.batch.n_seq_id)
    free(plan.batch.seq_id)
    free(plan.batch.output)
    free(plan.seq_ids)
    free(plan.is_decode)
    memset(plan, 0, sizeof(Plan))


cdef int32_t _affordable(const Plan *plan, int32_t is_alone) noexcept nogil:
    """Return how many prompt tokens this step has time for; 0 while their cost is unknown."""
    if plan.has_device:
        return prefill_gpu_tokens(plan, is_alone)
    if plan.prefill_token_us <= 0:
        return 0
    return <int32_t>min(1e6, plan.room_us / plan.prefill_token_us)


cdef int32_t _unit(const Plan *plan) noexcept nogil:
    """Return the smallest chunk of a prompt. Beside decoding slots, its first token joins their graph."""
    return FLASH_TILE + 1 if plan.n_decoding else FLASH_TILE


cdef int32_t _budget(const Plan *plan, const Slot *first, int32_t is_alone) noexcept nogil:
    """Return how many tokens this step may hold, including decoding slots. `first` is the next prompt, if any."""
    cdef int32_t n = _budget_in_time(plan, first, is_alone)
    return max(plan.n_decoding, min(n, plan.tokens_cap)) if plan.tokens_cap else n


cdef int32_t _budget_in_time(const Plan *plan, const Slot *first, int32_t is_alone) noexcept nogil:
    cdef int32_t n = _affordable(plan, is_alone), n_rest
    if plan.tokens_max > 0:
        return max(plan.n_decoding, min(plan.tokens_max, plan.batch_max))
    if is_alone:
        return min(plan.batch_max, max(plan.ubatch, n // plan.ubatch * plan.ubatch))
    n = max(n, _unit(plan))
    if first != NULL:
        n_rest = first.n_prefill - first.n_tokens
        n = max(n, min(n_rest, _unit(plan) + n_rest % _unit(plan)))
    return min(plan.batch_max, plan.n_decoding + n)


cdef int32_t _chunk(const Plan *plan, int32_t n_room, int32_t n_prompt, int32_t is_alone) noexcept nogil:
    """Return how much of a prompt to prefill: all that is left of it, or enough to leave whole tiles; 0 for none. The
    odd tokens cost as much as a tile, so they come first, where attention has the fewest cells."""
    cdef int32_t unit = _unit(plan), n_odd = n_prompt % unit
    if n_prompt <= n_room or is_alone:
        return min(n_prompt, n_room)
    if plan.has_device:
        if n_prompt <= n_room + n_room // 4 and n_prompt + plan.n_prefill_tokens + plan.n_decoding <= plan.batch_max:
            return n_prompt  # a rest would cost another graph
        return 0 if plan.n_prefill_tokens and n_room < plan.prefill_room // 2 else n_room
    if n_room < unit + n_odd:
        return n_room if plan.tokens_max or plan.n_prefill_tokens == 0 else 0
    if n_room < 2 * unit:
        return unit + n_odd
    n_odd = 1 if plan.n_decoding else n_odd
    return (n_room - n_odd) // FLASH_TILE * FLASH_TILE + n_odd


cdef int _stays_alone(const Plan *plan, int32_t n_prompt) noexcept nogil:
    """Return whether a prompt should not share its step with another, because llama.cpp makes the pieces of several
    prompts equally long, and so smaller than a tile. If compute is slow, a graph for each costs nothing extra."""
    return n_prompt >= FLASH_TILE and plan.prefill_token_us > SLOW_TOKEN_US and not plan.has_device


cdef void _stall_decoding(Plan *plan, Slots *slots) noexcept nogil:
    """Make this step one for prefill alone."""
    cdef int32_t i
    plan.n_stalled = plan.n_decoding + plan.n_deferred
    plan.n_decoding = 0
    for i in range(slots.n):
        slots.items[i].n_planned = 0


cdef void _add(Plan *plan, Slot *slot, int32_t token, int32_t pos, int8_t output) noexcept nogil:
    cdef int32_t i = plan.batch.n_tokens
    plan.batch.token[i] = token
    plan.batch.pos[i] = pos
    plan.seq_ids[i] = slot.id
    plan.batch.output[i] = output
    plan.is_decode[i] = slot.state == SLOT_DECODING
    if output:
        slot.i_output = i
        slot.i_row = plan.n_rows
        plan.n_rows += 1
    plan.batch.n_tokens = i + 1


cdef void _add_draft(Plan *plan, Slot *slot) noexcept nogil:
    """Add the tokens to verify, each with an output. The slot's output is still that of its next token."""
    cdef int32_t i, i_output = slot.i_output, i_row = slot.i_row
    for i in range(plan.n_draft):
        _add(plan, slot, slot.draft[i], plan.batch.pos[i_output] + 1 + i, 1)
    slot.n_draft = min(slot.n_guessed, plan.n_draft)
    slot.i_output = i_output
    slot.i_row = i_row


cdef void _add_padding(Plan *plan, const Slot *slot) noexcept nogil:
    cdef int32_t i, k = plan.batch.n_tokens
    for i in range(slot.n_padding):
        plan.batch.token[k + i] = 0
        plan.batch.pos[k + i] = slot.n_pos + slot.n_chunk + i
        plan.seq_ids[k + i] = slot.id
        plan.batch.output[k + i] = 0
        plan.is_decode[k + i] = 0
    plan.batch.n_tokens += slot.n_padding


cdef llamad_batch batch_part(const Plan *plan, int32_t begin, int32_t end) noexcept nogil:
    """Return a range of the batch as a batch."""
    cdef llamad_batch batch = plan.batch
    batch.n_tokens = end - begin
    batch.token += begin
    batch.pos += begin
    batch.n_seq_id += begin
    batch.seq_id += begin
    batch.output += begin
    return batch


cdef int _has_rows_next(const Slot *slot) noexcept nogil:
    """Return whether its prompt continues with an image or a sound. With a GPU, decoding slots do not stall for those:
    each slot's rows are a separate decode, so prefilling many prompts at once would save no time."""
    return slot.prefill[slot.n_tokens] < 0


cdef int32_t _choose_media(Plan *plan, Slot *slot, int32_t n_room) noexcept nogil:
    """Choose how many rows of an image or a sound are decoded in this step, before everything else; only one slot has
    rows in a step. Rows that see each other are not split: if they do not fit behind the prompts that this step has,
    they wait until their slot is the first one."""
    cdef int32_t n, can_split
    if plan.media_slot != NULL:
        return 0
    n = run_length(slot.prefill + slot.n_tokens, slot.n_prefill - slot.n_tokens)
    can_split = not slot.prefill[slot.n_tokens] & ROW_NON_CAUSAL or slot.n_partial > 0
    if can_split:
        n = min(n, min(n_room, plan.batch_max))
    elif n > n_room and plan.n_prefill_tokens:
        return 0
    plan.can_split_media = can_split
    plan.media_slot = slot
    plan.n_media = n
    return n


cdef void _choose_prompts(Plan *plan, Slots *slots) noexcept nogil:
    """Choose which prompts are prefilled in this step, and how much of each."""
    cdef int32_t n_left, n_prompt, n_media, turn, with_probs, n_outputs = PROMPT_OUTPUTS_MAX
    cdef int32_t n_chunks = 0, n_longest = 0
    cdef int32_t n_busy = plan.n_decoding + plan.n_deferred
    cdef Slot *slot = order_next(&plan.order, slots) if plan.can_mix or n_busy == 0 else NULL
    cdef int32_t is_alone = n_busy == 0 and plan.n_prefilling == 1
    plan.n_stalled = plan.is_put_off = 0
    if slot != NULL and not plan.has_device:
        turn = prefill_cpu_turn(plan, slots, slot)
        if turn == TURN_PREFILL:
            _stall_decoding(plan, slots)
        elif turn == TURN_DECODE:
            slot = NULL
    elif slot != NULL and not _has_rows_next(slot) and prefill_gpu_goes_first(plan):
        _stall_decoding(plan, slots)
    plan.budget = _budget(plan, slot, is_alone)
    plan.is_separate = plan.can_separate and plan.n_decoding > 0
    n_left = plan.budget - plan.n_decoding
    while slot != NULL and n_left > 0:
        if _has_rows_next(slot):
            if plan.n_stalled == 0 or not plan.has_device:
                n_media = _choose_media(plan, slot, n_left)
                order_count(&plan.order, slot, n_media)
                n_left -= n_media
            slot = order_next(&plan.order, slots)
            continue
        n_prompt = min(slot_until(slot) - slot.n_tokens, slot_room(slots, slot))
        with_probs = slot_shows_prompt(slot)
        if with_probs:
            n_prompt = min(n_prompt, n_outputs)
        if plan.n_prefill_tokens and _stays_alone(plan, n_prompt):
            break
        slot.n_planned = _chunk(plan, n_left, n_prompt, is_alone)
        if n_chunks and not padding_fits(plan, slots, n_chunks + 1, max(n_longest, slot.n_planned)):
            slot.n_planned = 0
            plan.is_put_off = 1
            slot = order_next(&plan.order, slots)  # a shorter one may fit; this one will soon be first
            continue
        n_chunks += 1
        n_longest = max(n_longest, slot.n_planned)
        n_left -= slot.n_planned
        order_count(&plan.order, slot, slot.n_planned)
        if with_probs:
            n_outputs -= slot.n_planned
            plan.is_separate = 0  # it needs all its logits
        plan.n_prefill_tokens += slot.n_planned
        if slot.n_planned == 0 or _stays_alone(plan, slot.n_planned):
            break
        slot = order_next(&plan.order, slots)


cdef void _add_separate(Plan *plan, Slots *slots) noexcept nogil:
    """Add all prompt tokens except the last one of each prompt, which joins the decoding slots: so the rows of the step
    are those of one token per slot."""
    cdef Slot *slot
    cdef int32_t i, k, end
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state == SLOT_PREFILLING and slot.n_planned:
            end = min(slot.n_tokens + slot.n_planned, slot.n_prefill - 1)
            for k in range(slot.n_tokens, end):
                _add(plan, slot, slot.prefill[k], slot.n_pos + k - slot.n_tokens, 0)
        _add_padding(plan, slot)
    plan.n_separate = plan.batch.n_tokens
    if plan.n_separate:
        plan.batch.output[plan.n_separate - 1] = 1  # see _add_output


cdef void _add_output(Plan *plan) noexcept nogil:
    """Make sure that the decode has an output. llama.cpp's CUDA backend treats a decode without any output as a
    separate graph, and then launches the captured graph of the decoding slots again, regardless of what ran in between,
    and dies of an illegal instruction (H200, CUDA 13; not with GGML_CUDA_DISABLE_GRAPHS=1). With an output it is
    another shape of the same graph, which is captured again."""
    if plan.has_device and plan.n_rows == 0 and plan.batch.n_tokens > plan.n_separate:
        plan.batch.output[plan.batch.n_tokens - 1] = 1
        plan.n_rows = 1


cdef int32_t _draft_beside(const Plan *plan, const Slots *slots) noexcept nogil:
    """Return how many drafted tokens each decoding slot may have beside the prompts of this step."""
    cdef const Slot *slot
    cdef int32_t i, n_ends = 0, n_slots = plan.n_decoding + plan.n_fillers, n, n_room, n_others
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state == SLOT_PREFILLING and slot.n_planned:
            if slot_shows_prompt(slot):
                return 0  # it may take all rows
            n_ends += slot.n_tokens + slot.n_planned == slot.n_prefill
    # The last token of a prompt would make another graph, because it is one token.
    if plan.tokens_max or plan.tokens_cap or (plan.is_separate and n_ends):
        return 0
    n = min(plan.n_draft, (plan.rows_max - n_ends) // n_slots - 1)
    n_room = plan.batch_max - n_slots
    if not plan.is_separate:
        # Drafts fill up the last graph, and make no other.
        n_others = n_slots + plan.n_prefill_tokens + plan.n_padding
        n_room = min(plan.batch_max - n_others, (plan.ubatch - n_others % plan.ubatch) % plan.ubatch)
    n = max(0, min(n, n_room // n_slots))
    return n if cells_fit(slots, plan.n_prefill_tokens + plan.n_padding + n_slots * (1 + n)) else 0


cdef void batch_fill(Plan *plan, Slots *slots) noexcept nogil:
    """Fill the batch in ascending slot order, because llama.cpp joins only such sequences into one graph."""
    cdef Slot *slot
    cdef int32_t i, k, n_prompt, with_probs, is_replayed
    plan.batch.n_tokens = plan.n_rows = plan.n_prefilling = plan.n_decoding = plan.n_deferred = 0
    plan.n_prefill_tokens = plan.n_separate = plan.n_prompt_left = plan.n_media = 0
    plan.media_slot = NULL
    for i in range(slots.n):
        slot = &slots.items[i]
        slot.i_output = -1
        slot.n_planned = slot.n_draft = 0
        if slot.sits_out:
            continue
        slot.n_planned = slot.state == SLOT_DECODING and not slot.task.is_paused and not load_int(&slot.deferral)
        plan.n_decoding += slot.n_planned
        plan.n_deferred += load_int(&slot.deferral) != 0
        if slot.state == SLOT_PREFILLING:
            plan.n_prefilling += 1
            plan.n_prompt_left += slot.n_prefill - slot.n_tokens
    order_begin(&plan.order, slots)
    _choose_prompts(plan, slots)
    if plan.media_slot != NULL or plan.n_decoding == 0:
        plan.n_draft = 0
    padding_choose(plan, slots)
    fillers_choose(plan, slots)
    if plan.n_draft:
        plan.n_draft = min(plan.n_draft, plan.rows_max // (plan.n_decoding + plan.n_fillers) - 1)
    if plan.n_draft and plan.n_prefill_tokens:
        plan.n_draft = _draft_beside(plan, slots)
    if plan.is_separate:
        _add_separate(plan, slots)
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.is_filler:
            # It has an output like a decoding slot, so that the shape is the same.
            _add(plan, slot, 0, slot.n_pos + slot.n_planned, 1)
            _add_draft(plan, slot)
        elif slot.state == SLOT_DECODING and slot.n_planned:
            _add(plan, slot, slot.next_token, slot.n_pos, 1)
            _add_draft(plan, slot)
        elif plan_has_output(plan, slot):
            n_prompt = slot.n_prefill
            with_probs = slot_shows_prompt(slot)
            is_replayed = slot_is_replayed(slot) or slot_is_recomputing(slot)
            for k in range(n_prompt - 1 if plan.is_separate else slot.n_tokens, slot.n_tokens + slot.n_planned):
                _add(plan, slot, slot.prefill[k], slot.n_pos + k - slot.n_tokens,
                     with_probs or (k == n_prompt - 1 and not is_replayed))
            if slot.n_tokens + slot.n_planned < n_prompt:
                slot.i_output = -1  # nothing is sampled yet
        if not plan.is_separate:
            _add_padding(plan, slot)
    _add_output(plan)


cdef void _learn_best(Plan *plan, double cost) noexcept nogil:
    """Learn the lowest cost: a lower one at once, a higher one slowly. The very first step is ignored."""
    plan.n_prefills = min(plan.n_prefills + 1, 3)
    if plan.n_prefills == 2 or cost < plan.best_token_us:
        plan.best_token_us = cost
    elif plan.n_prefills > 2:
        plan.best_token_us += RISE_RATE * (cost - plan.best_token_us)


cdef double _mean_position(const Plan *plan) noexcept nogil:
    """Return the mean position of the prompt tokens in this step."""
    cdef double total = 0
    cdef int32_t i, n = 0
    for i in range(plan.batch.n_tokens):
        if not plan.is_decode[i]:
            total += plan.batch.pos[i]
            n += 1
    return total / max(n, 1)


cdef void batch_learn(Plan *plan, int64_t decode_us, int64_t wait_us) noexcept nogil:
    """Learn from the cost of the last step; wait_us of it passed after decode() had returned."""
    cdef double cost, rate
    if plan.n_draft:
        plan.prefill_us = 0  # the slots have decoded
    if plan.n_media or plan.n_draft:
        return  # the time includes other rows
    if plan.turns.is_new:
        turns_learn(&plan.turns, decode_us - plan.decode_step_us - plan.n_prefill_tokens * plan.prefill_token_us)
        return  # another graph was built
    if plan.has_device:
        prefill_gpu_learn(plan, decode_us)
    else:
        prefill_cpu_learn(plan, <double>decode_us)
    if plan.n_prefill_tokens == 0:
        plan.wait_us += LEARN_RATE * (<double>wait_us - plan.wait_us) if plan.wait_us > 0 else <double>wait_us
        if plan.has_device:
            cost = <double>decode_us
            plan.decode_step_us += LEARN_RATE * (cost - plan.decode_step_us) if plan.decode_step_us > 0 else cost
        return
    # The cost of a short tail of a prompt is mostly overhead.
    if plan.n_prefill_tokens < FLASH_TILE and plan.prefill_token_us > 0:
        return
    cost = <double>decode_us - (plan.decode_step_us if plan.n_decoding else 0)
    cost = max(cost / (plan.n_prefill_tokens + plan.n_padding), 0.5)
    _learn_best(plan, cost)
    if plan.n_prefills > 1:
        costs_learn(&plan.token_costs, _mean_position(plan), cost)
    # The first steps of a GPU load code, so a lower cost is learned faster.
    rate = FALL_RATE if plan.has_device and cost < plan.prefill_token_us else LEARN_RATE
    plan.prefill_token_us += rate * (cost - plan.prefill_token_us) if plan.prefill_token_us > 0 else cost
