"""SAM 3.1's life cycle: buckets, memories and every decision, written independently of Meta's code and of the Rust code.

It replays each sequence of tests/golden/masklets/multiplex.json.gz. make_multiplex_session.py gives it the networks of
multiplex_model.py in place of drawn answers.
"""
import numpy as np, torch, torch.nn.functional as F
L = 48

def paint(rects):
    m = np.zeros((L, L), bool)
    for q in rects:
        m[max(0, q[1]):max(0, q[3]), max(0, q[0]):max(0, q[2])] = len(q) < 5 or bool(q[4])
    return m
f32 = np.float32
P = L // 4
S, H = (14 * P, 16 * P)
SLOTS = 16
up = lambda m, size, aa=False: F.interpolate(torch.as_tensor(np.asarray(m, np.float32))[None, None], size=size, mode='bilinear', align_corners=False, antialias=aa)[0, 0].numpy()
iou = lambda a, b: f32((a & b).sum()) / f32(max(1, (a | b).sum()))
iom = lambda a, b: f32((a & b).sum()) / (f32(min(a.sum(), b.sum())) + f32(1e-08))
sig = lambda x: 1 / (1 + np.exp(-np.float64(x)))

def rle(m):
    v = np.asarray(m).astype(np.uint8).ravel()
    c = np.flatnonzero(np.diff(v)) + 1
    r = np.diff(np.concatenate([[0], c, [v.size]])).tolist()
    return ([0] if v.size and v[0] else []) + r

def exclusive(m):
    """Each pixel to the highest, the first on ties; the others at most -10."""
    m = np.stack(m)
    w = m.argmax(0)
    return [np.where(w == k, x, np.minimum(x, f32(-10))) for k, x in enumerate(m)] if len(m) > 1 else list(m)

class State:
    """Objects that share a bank. slots: buckets of 16, an id, -1 free, -2 removed. frames[f] = what the state keeps of a frame."""

    def __init__(s, ids):
        s.ids = list(ids)
        s.slots = [[-1] * SLOTS for _ in range(-(-len(ids) // SLOTS))]
        s.cond, s.non, s.inputs = ({}, {}, {})
        s.kept = set()
        s.fill(ids)

    def fill(s, ids):
        ids = list(ids)
        for b in s.slots:
            for j in range(SLOTS):
                if ids and b[j] == -1:
                    b[j] = ids.pop(0)

    def free(s):
        return sum((v == -1 for b in s.slots for v in b))

    def at(s, f):
        return s.cond.get(f) or s.non.get(f)

    def mux(s, value):
        return [[value.get(v, 0) if v >= 0 else 0 for v in b] for b in s.slots]

class Policy:

    def __init__(s, q, constants):
        s.q, s.c = (q, {**constants, **q['opt']})
        s.states, s.src, s.born, s.unm, s.alive, s.pair, s.last, s.run3, s.sure, s.score, s.tscore, s.next, s.cache = ([], {}, {}, {}, {}, {}, {}, {}, set(), {}, {}, 0, {})

    def ids(s):
        return sorted((i for t in s.states for i in t.ids))

    def start(s, f):
        pass

    def track(s, t, f, bank):
        """-> per object (mask 4P, object logit), pointer."""
        a = {i: s.answer(i, f) for i in t.ids}
        return (a, {i: f + 1000 for i in t.ids})

    def point(s, f, masks):
        return {i: f + 1000.5 for i in masks}

    def write(s, t, f, stored, masks, present):
        pass

    def answer(s, i, f):
        e = s.q['trk'].get(s.src[i], {}).get(str(f), [[], 5.0, -3.0, 0.3])
        return (np.where(paint(e[0]), f32(e[1]), f32(-e[1])) if e[2] > 0 else np.full((L, L), f32(-1024)), e[2])

    def bank(s, t, f, rev):
        T, d = (s.q['frames'], -1 if rev else 1)
        c = list(t.cond)
        sel = c
        if len(c) > 4:
            b, a = ([x for x in c if x < f], [x for x in c if x >= f])
            sel = [max(b)] * bool(b) + ([min(a)] if a else [])
            sel += sorted([x for x in c if x not in sel], key=lambda x: abs(x - f))[:4 - len(sel)]
        have = lambda x: x in t.non or (x in c and x not in sel)
        n = min(T, 16)
        row = lambda x: 6 - (f - x) * d if 1 <= (f - x) * d <= 6 else 6
        mem = [[x, row(x)] for x in sel] + [[f - d * k, k - 1] for k in range(6, 0, -1) if have(f - d * k)]
        ptr = [[x, abs(f - x)] for x in sel]
        for k in range(1, n):
            if not 0 <= f - d * k < T:
                break
            if have(f - d * k):
                ptr.append([f - d * k, k])
        return dict(ids=list(t.ids), mem=[[x, r, *t.at(x)['mem']] for x, r in mem], ptr=[[t.at(x)['ptr'], k] for x, k in ptr], div=n - 1)

    def encode(s, t, f, stored, masks, present):
        """Memory of a state's frame. stored: from its kept masks at S, exclusive within the state; else from this frame's logits at 16P."""
        s.write(t, f, stored, masks, present)
        e = t.at(f)
        on, cd = ({i: 1 for i in present}, {i: 1 for i in e['conditional']})
        e['mem'] = [[[j for j in range(SLOTS) if b[j]] for b in t.mux(on)], [[j for j in range(SLOTS) if b[j]] for b in t.mux(cd)], int(stored)]
        return dict(ids=list(t.ids), stored=stored, area=[int((m > 0).sum()) for m in masks], present=[i for i in t.ids if i in on], conditional=[i for i in t.ids if i in cd])

    def stored(s, t, f):
        e = t.at(f)
        return s.encode(t, f, True, exclusive([up(e['mask'][i], (S, S)) for i in t.ids]), [i for i in t.ids if e['obj'][i] > 0])

    def prompt(s, masks):
        """Binary 16P masks given together -> stored 4P masks: through the video's size; each loses the pixels of all the others."""
        v = [up(m, s.q['video'], True) > 0.5 for m in masks]
        v = [x & ~np.any([y for k, y in enumerate(v) if k != n], axis=0) if len(v) > 1 else x for n, x in enumerate(v)]
        w = [np.where(x, f32(1024), f32(-1024)) for x in v]
        return [x if x.shape == (L, L) else up(x, (L, L), True) for x in w]

    def drop(s, gone):
        """Takes objects out of their states; what only they were given on a frame is forgotten."""
        for t in s.states:
            g = gone & set(t.ids)
            if not g:
                continue
            for x in [x for x, v in t.inputs.items() if v & g]:
                t.inputs[x] -= g
                if not t.inputs[x]:
                    del t.inputs[x]
                    t.kept.discard(x)
                    if x in t.cond:
                        t.non[x] = t.cond.pop(x)
                    if not t.cond:
                        t.cond.clear()
                        t.non.clear()
                        t.kept.clear()
            t.ids = [i for i in t.ids if i not in g]
            t.slots = [[-2 if v in g else v for v in b] for b in t.slots]
            left = [n for n, b in enumerate(t.slots) if any((v >= 0 for v in b))]
            if len(left) < len(t.slots):
                t.slots = [t.slots[n] for n in left]
                for e in list(t.cond.values()) + list(t.non.values()):
                    e['ptr'] = [e['ptr'][n] for n in left]
                    e['mem'] = [[e['mem'][0][n] for n in left], [e['mem'][1][n] for n in left], e['mem'][2]]
                    e.update(memory=e['memory'][left]) if 'memory' in e else None
            for e in list(t.cond.values()) + list(t.non.values()):
                e['conditional'] -= g
        s.states = [t for t in s.states if t.ids]

    def remove(s, i):
        s.drop({i})
        s.score.pop(i, None)
        for m in s.cache.values():
            m.pop(i, None)

    def fetch(s, f):
        return s.show((f, s.cache[f], s.score, s.tscore[f], None), ())

    def frame(s, f, rev, alone):
        q, c, r, enc, banks = (s.q, s.c, {}, [], [])
        s.start(f)
        D = q['det'][f]
        p = [float(torch.sigmoid(torch.logit(torch.tensor(d[0], dtype=torch.float64)).float())) for d in D]
        M = [np.where(paint(d[2]), f32(d[3]), f32(-d[3])) for d in D]
        B = [m > 0 for m in M]
        kept = []
        order = sorted(range(len(D)), key=lambda k: -p[k])
        for n, k in enumerate(order):
            if p[k] > f32(c['score_threshold_detection']) and all(((iom(B[k], B[j]) if c['det_nms_use_iom'] else iou(B[k], B[j])) <= f32(c['det_nms_thresh']) for j in (order[:n] if alone else kept))):
                kept.append(k)
        prob = {k: p[k] for k in kept}

        def inside(k):
            ys, xs = np.nonzero(B[k])
            x, y = ((v.min() / L + (v.max() + 1) / L) / 2 for v in (xs, ys))
            return 0.025 < x < 0.975 and 0.025 < y < 0.975
        det = sorted((k for k in kept if not len(B[k].nonzero()[0]) or inside(k)))
        ids = s.ids()
        trk, obj = ({}, {})
        for t in s.states:
            if f not in t.kept:
                banks.append(s.bank(t, f, rev))
                a, ptr = s.track(t, f, banks[-1])
                t.non[f] = dict(mask={i: a[i][0] for i in t.ids}, obj={i: a[i][1] for i in t.ids}, ptr=t.mux(ptr), conditional=set(), mem=None)
            e = t.at(f)
            for i in t.ids:
                trk[i], obj[i] = (e['mask'][i].copy(), e['obj'][i])
        full = [i for i in ids if (trk[i] > 0).any()]
        match, rec = ({}, {})
        metric = iom if c['use_iom_recondition'] else iou
        if ids:
            I = {(d, i): metric(B[d], trk[i] > 0) for d in det for i in ids}
            un = [i for i in full if not any((I[d, i] >= f32(0.5) for d in det))]
            new = [d for d in det if p[d] >= f32(c['new_det_thresh']) and (not any((I[d, i] >= f32(c['assoc_iou_thresh']) for i in ids)))]
            many_d = {d for d in det if sum((I[d, i] >= f32(0.5) for i in ids)) > 1}
            many_t = {i for i in ids if sum((I[d, i] >= f32(0.5) for d in det)) > 1}
            I = {k: f32(0) if k[0] in many_d or k[1] in many_t else v for k, v in I.items()}
            match = {d: [i for i in ids if I[d, i] >= f32(c['assoc_iou_thresh'])] for d in det}
            for d in det:
                b = max(ids, key=lambda i: I[d, i])
                if p[d] >= f32(0.8) and d not in new and (I[d, b] >= f32(0.5)):
                    rec[b] = d
        else:
            un, new = ([], [d for d in range(len(D)) if d in prob and prob[d] >= f32(c['new_det_thresh'])])
            new.sort(key=lambda d: d not in det)
        dropped = max(0, len(ids) + len(new) - c['max_num_objects'])
        if dropped:
            new = sorted(new, key=lambda d: -p[d])[:c['max_num_objects'] - len(ids)]
        matched = {i for v in match.values() for i in v}
        for i in ids:
            s.alive[i] = min(8, max(-4, s.alive[i] + (1 if i in matched else -1)))
            if i in un:
                s.unm[i] += 1
        for v in match.values():
            for n, i in enumerate(v):
                for k in v[n + 1:]:
                    s.pair[i, k] = s.pair.get((i, k), 0) + 1
        young = lambda i: s.born[i] < f + c['hotstart_delay'] if rev else s.born[i] > f - c['hotstart_delay']
        elder = lambda a, b: s.born[a] > s.born[b] if rev else s.born[a] < s.born[b]
        gone = {i for i in ids if young(i) and (s.unm[i] >= c['hotstart_unmatch_thresh'] or max([n for (a, b), n in s.pair.items() if b == i and elder(a, b)], default=0) >= c['hotstart_dup_thresh'])}
        done = []
        if c['recondition_every_nth_frame'] and f % c['recondition_every_nth_frame'] == 0:
            good = {i: d for i, d in rec.items() if f32(sig(obj[i])) > f32(0.8)}
            for i, d in good.items():
                trk[i] = np.where((M[d] > 0) == (trk[i] > 0), trk[i], M[d])
            for t in s.states:
                mine = [i for i in good if i in t.ids]
                if not mine:
                    continue
                e = t.at(f)
                done += mine
                e['conditional'] |= set(mine)
                t.kept.add(f)
                t.inputs.setdefault(f, set()).update(mine)
                hi = {i: up(M[good[i]], (H, H)) > 0 for i in mine}
                for i, m in zip(mine, s.prompt(list(hi.values()))):
                    e['mask'][i], e['obj'][i] = (m, 10.0)
                tag = {v: e['ptr'][b][j] for b, k in enumerate(t.slots) for j, v in enumerate(k) if v >= 0}
                tag.update(s.point(f, hi))
                e['ptr'] = t.mux(tag)
            for t in s.states:
                if set(done) & set(t.ids):
                    enc.append(s.stored(t, f))
        last = {i: 100000 if i in gone else s.last[i] for i in ids}
        occ = set()
        z = {i: trk[i] > 0 for i in ids}
        empty = [i for i in ids if not z[i].any()]
        for n, i in enumerate(ids):
            for k in ids[n + 1:]:
                if iou(z[i], z[k]) >= f32(0.7):
                    a, b = (last[i], last[k])
                    if (a < b if rev else a > b) and b > -1:
                        occ.add(i)
                    if (b < a if rev else b > a) and a > -1:
                        occ.add(k)
        s.last.update({i: f if i in occ or i in empty else last[i] for i in ids})
        for i in occ:
            trk[i] = np.full((L, L), f32(-10))
        shrunk = []
        if ids:
            X = np.stack([up(trk[i], (H, H)) for i in ids])
            w = X.argmax(0)
            cut = []
            for n, i in enumerate(ids):
                a = int((X[n] > 0).sum())
                keep = len(ids) == 1 or f32(((X[n] > 0) & (w == n)).sum()) / f32(max(1, a)) >= f32(0.3)
                y = X[n] if keep else np.minimum(X[n], f32(-10))
                cut.append(y)
                if not np.array_equal(y, X[n]):
                    shrunk.append(i)
            cut = dict(zip(ids, cut))
            present = [i for i in ids if (cut[i] > 0).any()]
            for t in s.states:
                enc.append(s.encode(t, f, False, [cut[i] for i in t.ids], present))
            r.update(present=present, memory_area=[int((cut[i] > 0).sum()) for i in ids], shrunk=shrunk)
        out = {i: up(trk[i], q['video']) > 0 for i in ids}
        birth = {s.next + n: d for n, d in enumerate(new)}
        s.next += len(new)
        out.update({i: up(M[d], q['video']) > 0 for i, d in birth.items()})
        for i in ids:
            s.run3[i] = s.run3[i] + 1 if i in matched else 0
        for i, d in birth.items():
            s.born[i], s.unm[i], s.alive[i], s.last[i], s.run3[i], s.src[i], s.score[i] = (f, 0, 0, -1, 1, D[d][1], prob[d])
        s.tscore.setdefault(f, {}).update({**{i: prob[d] for i, d in birth.items()}, **{i: sig(obj[i]) for i in ids}})
        for i in gone:
            s.score[i] = -10000.0
        s.sure |= {i for i, n in s.run3.items() if n >= 3 and i not in gone}
        if birth:
            room = [t for t in s.states if t.free() >= len(birth)]
            m = [up(M[d], (H, H)) > 0 for d in birth.values()]
            keepm = dict(zip(birth, s.prompt(m)))
            on = {i: 10.0 if x.any() else -10.0 for i, x in zip(birth, m)}
            if room:
                t = min(room, key=lambda t: t.free())
                t.ids += list(birth)
                t.fill(birth)
                e = t.at(f)
                e['mask'].update(keepm)
                e['obj'].update(on)
            else:
                t = State(birth)
                s.states.append(t)
                e = t.cond[f] = dict(mask=keepm, obj=on, ptr=t.mux({}), conditional=set(), mem=None)
            tag = {v: e['ptr'][b][j] for b, k in enumerate(t.slots) for j, v in enumerate(k) if v >= 0 and b < len(e['ptr'])}
            tag.update(s.point(f, dict(zip(birth, m))))
            e['ptr'] = t.mux(tag)
            e['conditional'] |= set(birth)
            t.kept.add(f)
            t.inputs.setdefault(f, set()).update(birth)
            old = (e['mem'], e.get('memory'))
            enc.append(s.stored(t, f))
            if room and f in t.cond:
                e['mem'], e['memory'] = old
        s.drop(gone)
        s.pair = {k: v for k, v in s.pair.items() if not gone & set(k)}
        now = s.ids()
        un3 = [i for i in now if i not in s.sure]
        tens = lambda d: {str(i): d[i] for i in now}
        r.update(f=f, det=det, trk=ids, trk_area=[int((trk0 > 0).sum()) for trk0 in []] or None, matches={str(d): v for d, v in match.items() if v}, unmatched=un, recondition={str(i): d for i, d in rec.items()}, reconditioned=sorted(done), removed=sorted(gone), new=[[i, d] for i, d in birth.items()], dropped=dropped, ids=now, encode=enc, bank=banks, states=[dict(ids=list(t.ids), buckets=t.slots and [list(b) for b in t.slots], available=t.free(), cond=sorted(t.cond), non=sorted(t.non)) for t in s.states], born=tens(s.born), unmatched_count=tens(s.unm), keep_alive=tens(s.alive), last_occluded=tens(s.last), pairs=sorted(([a, b, n] for (a, b), n in s.pair.items())), unconfirmed=un3, confirm=tens(s.run3))
        r.pop('trk_area')
        if ids:
            r['occluded'] = [i for i in ids if i in occ]
        return (r, (f, out, dict(s.score), dict(s.tscore[f]), un3))

    def show(s, o, hide):
        f, out, score, ts, _ = o
        s.cache[f] = {i: m for i, m in out.items() if i not in hide}
        ids = [i for i in sorted(out) if out[i].any() and i not in hide]
        w = np.stack([np.where(out[i], f32(ts[i]), f32(0)) for i in ids]).argmax(0) if ids else None
        return dict(f=f, ids=ids, scores=[round(float(f32(score[i])), 5) for i in ids], masks=[rle(out[i] & ((w == n) | (len(ids) == 1))) for n, i in enumerate(ids)])
