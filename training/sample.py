"""Answers of the model in PyTorch: many prompts at once, every step over the whole text. Slow and plain."""
import torch

from model import CHUNK

THINK_OFF = "<think>\n\n</think>\n\n"


def chat_prompt(text, thinking=False):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" + ("<think>\n" if thinking else THINK_OFF)


def draw(logits, source, temperature, top_k, top_p):
    values, indices = (logits / temperature).topk(top_k, -1)
    chances = values.softmax(-1)
    chances = chances * (chances.cumsum(-1) - chances < top_p)
    # The largest of chance / exponential is a draw, and costs no loop over rows.
    noise = torch.empty_like(chances).exponential_(generator=source)
    return indices.gather(-1, (chances / noise).argmax(-1, keepdim=True)).squeeze(-1)


@torch.no_grad()
def answers(model, tokenizer, prompts, seed, most=320, temperature=0.7, top_k=40, top_p=0.95):
    """One answer a prompt, as (text, ended with the stop token)."""
    device, stop = model.embedding.device, tokenizer.token_to_id("<|im_end|>")
    ids = [tokenizer.encode(prompt).ids for prompt in prompts]
    lengths = torch.tensor([len(one) for one in ids], device=device)
    room = -(-(int(lengths.max()) + most) // CHUNK) * CHUNK
    tokens = torch.zeros(len(ids), room, dtype=torch.long, device=device)
    for i, one in enumerate(ids):
        tokens[i, :len(one)] = torch.tensor(one)
    started, done = lengths.clone(), torch.zeros(len(ids), dtype=torch.bool, device=device)
    source = torch.Generator(device).manual_seed(seed)
    rows = torch.arange(len(ids), device=device)
    for _ in range(most):
        width = -(-int(lengths.max()) // CHUNK) * CHUNK
        hidden, _ = model.hidden(tokens[:, :width])
        drawn = draw(model.logits(hidden[rows, lengths - 1]), source, temperature, top_k, top_p)
        drawn = torch.where(done, stop, drawn)
        tokens[rows[~done], lengths[~done]] = drawn[~done]
        lengths = lengths + (~done)
        done |= drawn == stop
        if bool(done.all()):
            break
    out = []
    for i in range(len(ids)):
        made = tokens[i, started[i]:lengths[i]].tolist()
        out.append((tokenizer.decode([token for token in made if token != stop], skip_special_tokens=False), bool(done[i])))
    return out
