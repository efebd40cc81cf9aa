// What TeX's names stand for. Each table is a list of "name character" pairs, so that it can be read and searched.
const pairs = (text) => {
  const parts = text.trim().split(/\s+/);
  return parts.flatMap((part, at) => (at % 2 ? [] : [[part, parts[at + 1]]]));
};

// Letters and other things that stand by themselves.
const kOrdinary = pairs(`
alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ varkappa ϰ
lambda λ mu μ nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ
chi χ psi ψ omega ω digamma ϝ Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
Alpha Α Beta Β Epsilon Ε Zeta Ζ Eta Η Iota Ι Kappa Κ Mu Μ Nu Ν Omicron Ο Rho Ρ Tau Τ Chi Χ thetasym ϑ varGamma Γ
varDelta Δ varTheta Θ varLambda Λ varXi Ξ varPi Π varSigma Σ varUpsilon Υ varPhi Φ varPsi Ψ varOmega Ω infty ∞
partial ∂ nabla ∇ hbar ℏ hslash ℏ ell ℓ wp ℘ Re ℜ Im ℑ aleph ℵ beth ℶ gimel ℷ daleth ℸ imath ı jmath ȷ eth ð
emptyset ∅ varnothing ∅ forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ top ⊤ bot ⊥ angle ∠ measuredangle ∡
sphericalangle ∢ triangle △ triangledown ▽ square □ Box □ blacksquare ■ Diamond ◊ lozenge ◊ blacklozenge ⧫
blacktriangle ▲ blacktriangledown ▼ bigstar ★ clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠ flat ♭ natural ♮
sharp ♯ prime ′ backprime ‵ checkmark ✓ maltese ✠ dag † dagger † ddag ‡ ddagger ‡ S § P ¶ copyright © circledR ®
pounds £ yen ¥ euro € degree ° mho ℧ Finv Ⅎ Bbbk 𝕜 complement ∁ surd √ circledS Ⓢ AA Å aa å AE Æ ae æ OE Œ oe œ
O Ø o ø ss ß R ℝ N ℕ Z ℤ Q ℚ C ℂ reals ℝ Reals ℝ natnums ℕ Complex ℂ cnums ℂ alef ℵ alefsym ℵ infin ∞ exist ∃
empty ∅ weierp ℘ real ℜ image ℑ diagup ╱ diagdown ╲ minuso ⦵ lq ‘ rq ’ Dagger ‡ sect § bull • clubs ♣ diamonds ♢
hearts ♡ spades ♠ mathsterling £ Game ⅁ textdegree ° textbackslash \\ textbar | textless < textgreater >
textdollar $ textunderscore _ varvdots ⋮ # # % % & & $ $ _ _`);

const kBinary = pairs(`
pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ oslash ⊘ odot ⊙ dotplus ∔
cup ∪ cap ∩ uplus ⊎ sqcup ⊔ sqcap ⊓ vee ∨ lor ∨ wedge ∧ land ∧ setminus ∖ smallsetminus ∖ wr ≀ amalg ⨿ bigcirc ◯
diamond ⋄ bigtriangleup △ bigtriangledown ▽ triangleleft ◃ triangleright ▹ lhd ⊲ rhd ⊳ unlhd ⊴ unrhd ⊵ ltimes ⋉
rtimes ⋊ leftthreetimes ⋋ rightthreetimes ⋌ curlyvee ⋎ curlywedge ⋏ veebar ⊻ barwedge ⊼ doublebarwedge ⩞
intercal ⊺ divideontimes ⋇ boxplus ⊞ boxminus ⊟ boxtimes ⊠ boxdot ⊡ circledast ⊛ circledcirc ⊚ circleddash ⊝
centerdot ⋅ gtrdot ⋗ lessdot ⋖ doublecup ⋓ doublecap ⋒ Cup ⋓ Cap ⋒ plusmn ± And & sdot ⋅ bmod mod`);

const kRelations = pairs(`
eq = ne ≠ neq ≠ lt < gt > le ≤ leq ≤ ge ≥ geq ≥ leqq ≦ geqq ≧ leqslant ⩽ geqslant ⩾ ll ≪ gg ≫ lll ⋘ ggg ⋙
llless ⋘ gggtr ⋙ nless ≮ ngtr ≯ nleq ≰ ngeq ≱ nleqslant ≰ ngeqslant ≱ lneq ⪇ gneq ⪈ lneqq ≨ gneqq ≩ lnsim ⋦
gnsim ⋧ lesssim ≲ gtrsim ≳ lessapprox ⪅ gtrapprox ⪆ lnapprox ⪉ gnapprox ⪊ lessgtr ≶ gtrless ≷ lesseqgtr ⋚
gtreqless ⋛ lesseqqgtr ⪋ gtreqqless ⪌ equiv ≡ sim ∼ nsim ≁ simeq ≃ approx ≈ approxeq ≊ thickapprox ≈ thicksim ∼
cong ≅ ncong ≇ doteq ≐ doteqdot ≑ Doteq ≑ fallingdotseq ≒ risingdotseq ≓ circeq ≗ eqcirc ≖ triangleq ≜ bumpeq ≏
Bumpeq ≎ backsim ∽ backsimeq ⋍ asymp ≍ propto ∝ varpropto ∝ prec ≺ succ ≻ preceq ⪯ succeq ⪰ preccurlyeq ≼
succcurlyeq ≽ curlyeqprec ⋞ curlyeqsucc ⋟ precsim ≾ succsim ≿ precapprox ⪷ succapprox ⪸ nprec ⊀ nsucc ⊁
npreceq ⋠ nsucceq ⋡ precneqq ⪵ succneqq ⪶ precnsim ⋨ succnsim ⋩ precnapprox ⪹ succnapprox ⪺ eqslantless ⪕
eqslantgtr ⪖ in ∈ isin ∈ notin ∉ ni ∋ owns ∋ notni ∌ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subseteqq ⫅
supseteqq ⫆ subsetneq ⊊ supsetneq ⊋ varsubsetneq ⊊ varsupsetneq ⊋ subsetneqq ⫋ supsetneqq ⫌ nsubseteq ⊈
nsupseteq ⊉ Subset ⋐ Supset ⋑ sqsubset ⊏ sqsupset ⊐ sqsubseteq ⊑ sqsupseteq ⊒ sub ⊂ sube ⊆ supe ⊇ mid ∣ nmid ∤
parallel ∥ nparallel ∦ shortmid ∣ shortparallel ∥ nshortmid ∤ nshortparallel ∦ perp ⟂ vdash ⊢ dashv ⊣ models ⊨
vDash ⊨ Vdash ⊩ Vvdash ⊪ nvdash ⊬ nvDash ⊭ nVdash ⊮ nVDash ⊯ bowtie ⋈ Join ⋈ smile ⌣ frown ⌢ smallsmile ⌣
smallfrown ⌢ between ≬ pitchfork ⋔ therefore ∴ because ∵ backepsilon ∍ vartriangle △ vartriangleleft ⊲
vartriangleright ⊳ trianglelefteq ⊴ trianglerighteq ⊵ ntriangleleft ⋪ ntriangleright ⋫ ntrianglelefteq ⋬
ntrianglerighteq ⋭ blacktriangleleft ◀ blacktriangleright ▶ multimap ⊸ coloneqq ≔ coloneq ≔ eqqcolon ≕
dblcolon ∷ vcentcolon : ratio : colonequals ≔ equalscolon ≕ eqcolon ≕ coloncolon ∷ coloncolonequals ⩴ Coloneqq ⩴
eqsim ≂ uArr ⇑ dArr ⇓ Uarr ⇑ Darr ⇓ Lrarr ⇔ nleqq ≰ ngeqq ≱ nsubseteqq ⊈ nsupseteqq ⊉ varsubsetneqq ⫋
varsupsetneqq ⫌ lvertneqq ≨ gvertneqq ≩ to → rightarrow → leftarrow ← gets ← uparrow ↑ downarrow ↓
leftrightarrow ↔ updownarrow ↕ Rightarrow ⇒ Leftarrow ⇐ Uparrow ⇑ Downarrow ⇓ Leftrightarrow ⇔ Updownarrow ⇕
implies ⟹ impliedby ⟸ iff ⟺ longrightarrow ⟶ longleftarrow ⟵ longleftrightarrow ⟷ Longrightarrow ⟹
Longleftarrow ⟸ Longleftrightarrow ⟺ mapsto ↦ longmapsto ⟼ mapsfrom ↤ hookrightarrow ↪ hookleftarrow ↩
rightharpoonup ⇀ rightharpoondown ⇁ leftharpoonup ↼ leftharpoondown ↽ rightleftharpoons ⇌ leftrightharpoons ⇋
upharpoonright ↾ upharpoonleft ↿ downharpoonright ⇂ downharpoonleft ⇃ restriction ↾ nearrow ↗ searrow ↘
swarrow ↙ nwarrow ↖ nrightarrow ↛ nleftarrow ↚ nleftrightarrow ↮ nRightarrow ⇏ nLeftarrow ⇍ nLeftrightarrow ⇎
rightrightarrows ⇉ leftleftarrows ⇇ rightleftarrows ⇄ leftrightarrows ⇆ upuparrows ⇈ downdownarrows ⇊
Lleftarrow ⇚ Rrightarrow ⇛ Lsh ↰ Rsh ↱ twoheadrightarrow ↠ twoheadleftarrow ↞ rightarrowtail ↣ leftarrowtail ↢
looparrowright ↬ looparrowleft ↫ curvearrowright ↷ curvearrowleft ↶ circlearrowright ↻ circlearrowleft ↺
rightsquigarrow ⇝ leadsto ⇝ leftrightsquigarrow ↭ dashrightarrow ⇢ dashleftarrow ⇠ rarr → larr ← rArr ⇒ lArr ⇐
hArr ⇔ harr ↔ uarr ↑ darr ↓ Rarr ⇒ Larr ⇐ Harr ⇔ lrarr ↔ lrArr ⇔`);

const kLarge = pairs(`
sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigvee ⋁ bigwedge ⋀ bigoplus ⨁ bigotimes ⨂ bigodot ⨀ biguplus ⨄
bigsqcup ⨆`);
const kIntegrals = pairs(`int ∫ iint ∬ iiint ∭ iiiint ⨌ oint ∮ oiint ∯ oiiint ∰ intop ∫ smallint ∫`);

const kPunctuation = pairs(`colon : ldotp . cdotp · comma ,`);
const kDots = pairs(`
dots … ldots … dotso … dotsc … cdots ⋯ dotsb ⋯ dotsm ⋯ dotsi ⋯ vdots ⋮ ddots ⋱ iddots ⋰ mathellipsis …
textellipsis …`);

const kFunctions = `sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec arccsc arctg arcctg
arsinh arcosh artanh exp log ln lg lb cotg arg deg dim hom ker Pr erf sgn tr rank diag span tg ctg cosec sh ch th cth`.split(/\s+/);
// These have what belongs to them below, in displays.
const kLimitFunctions = pairs(`
lim lim limsup lim_sup liminf lim_inf max max min min sup sup inf inf det det gcd gcd lcm lcm argmax arg_max
argmin arg_min injlim inj_lim projlim proj_lim plim plim varinjlim inj_lim varprojlim proj_lim`);

// What \left, \right, \big and their like may be followed by.
export const kDelimiters = new Map([...pairs(`
( ( ) ) [ [ ] ] | | / / < ⟨ > ⟩ lbrace { rbrace } { { } } lbrack [ rbrack ] langle ⟨ rangle ⟩ lang ⟨ rang ⟩
lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ vert | lvert | rvert | Vert ‖ lVert ‖ rVert ‖ backslash \\ lgroup ⟮ rgroup ⟯
lmoustache ⎰ rmoustache ⎱ ulcorner ⌜ urcorner ⌝ llcorner ⌞ lrcorner ⌟ llbracket ⟦ rrbracket ⟧ lparen ( rparen )
lBrace ⦃ rBrace ⦄ uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑ Downarrow ⇓ Updownarrow ⇕`), ["\\|", "‖"], [".", ""]]);
const kOpening = "( [ { ⟨ ⌊ ⌈ ⟮ ⎰ ⌜ ⌞ ⟦ ⦃".split(" ");
const kClosing = ") ] } ⟩ ⌋ ⌉ ⟯ ⎱ ⌝ ⌟ ⟧ ⦄".split(" ");

// name -> character; wide ones stretch over what they stand on.
export const kAccents = new Map(pairs(`
hat ˆ check ˇ tilde ˜ acute ´ grave \` dot ˙ ddot ¨ dddot ⃛ ddddot ⃜ breve ˘ bar ¯ vec ⃗ mathring ˚`));
export const kWideAccents = new Map(pairs(`
widehat ˆ widecheck ˇ widetilde ˜ overrightarrow → overleftarrow ← overleftrightarrow ↔ overbrace ⏞
overbracket ⎴ overparen ⏜ wideparen ⏜ overrightharpoon ⇀ overleftharpoon ↼ overgroup ⏠ Overrightarrow ⇒`));
export const kUnderAccents = new Map(pairs(`
underbrace ⏟ underbracket ⎵ underparen ⏝ underrightarrow → underleftarrow ← underleftrightarrow ↔ utilde ˜
undergroup ⏡`));
export const kLongArrows = new Map(pairs(`
xrightarrow → xleftarrow ← xleftrightarrow ↔ xRightarrow ⇒ xLeftarrow ⇐ xLeftrightarrow ⇔ xmapsto ↦
xhookrightarrow ↪ xhookleftarrow ↩ xrightharpoonup ⇀ xrightharpoondown ⇁ xleftharpoonup ↼ xleftharpoondown ↽
xrightleftharpoons ⇌ xleftrightharpoons ⇋ xlongequal = xtwoheadrightarrow ↠ xtwoheadleftarrow ↞ xtofrom ⇄
xrightleftarrows ⇄ xrightequilibrium ⇌ xleftequilibrium ⇋`));

// Widths in em.
export const kSpaces = new Map([[",", 1 / 6], ["thinspace", 1 / 6], [":", 2 / 9], [">", 2 / 9], ["medspace", 2 / 9],
  [";", 5 / 18], ["thickspace", 5 / 18], ["!", -1 / 6], ["negthinspace", -1 / 6], ["negmedspace", -2 / 9],
  ["negthickspace", -5 / 18], [" ", .25], ["\n", .25], ["space", .25], ["nobreakspace", .25], ["enspace", .5], ["enskip", .5],
  ["quad", 1], ["qquad", 2]]);

// name -> { kind, text }, for all that is one character or one word.
export const kSymbols = new Map();
const add = (kind, list) => { for (const [name, text] of list) kSymbols.set(name, { kind, text }); };
add("ordinary", kOrdinary);
add("binary", kBinary);
add("relation", kRelations);
add("large", kLarge);
add("integral", kIntegrals);
add("punctuation", kPunctuation);
add("dots", kDots);
add("function", kFunctions.map((name) => [name, name]));
add("limit", kLimitFunctions.map(([name, text]) => [name, text.replace("_", "\u2009")]));
const kindOfDelimiter = (text) => (kOpening.includes(text) ? "open" : kClosing.includes(text) ? "close" : "fence");
for (const [name, text] of kDelimiters) {
  if (name.length > 1 && !kSymbols.has(name)) kSymbols.set(name.replace("\\", ""), { kind: kindOfDelimiter(text), text });
}
for (const name of ["lvert", "lVert"]) kSymbols.get(name).kind = "open";
for (const name of ["rvert", "rVert"]) kSymbols.get(name).kind = "close";
kSymbols.set("{", { kind: "open", text: "{" });
kSymbols.set("}", { kind: "close", text: "}" });
kSymbols.set("backslash", { kind: "ordinary", text: "\\" });

// Characters that are typed as they are.
export const kCharacters = new Map([..."+-*⋅×÷±∓∪∩∧∨⊕⊗∖∘"].map((text) => [text, "binary"]));
for (const text of "=<>:≤≥≠≈≡∼≃≅∈∉∋⊂⊃⊆⊇→←↔⇒⇐⇔↦⟹⟺⟶∣∥∝≪≫≺≻⊢⊨⊥") kCharacters.set(text, "relation");
for (const text of "∑∏∐⋃⋂⋁⋀⨁⨂") kCharacters.set(text, "large");
for (const text of "∫∬∭∮") kCharacters.set(text, "integral");
for (const text of ",;") kCharacters.set(text, "punctuation");
for (const text of [...kOpening, ...kClosing]) kCharacters.set(text, kindOfDelimiter(text));
for (const text of "|‖") kCharacters.set(text, "fence");
kCharacters.set("/", "ordinary");
for (const text of "!?") kCharacters.set(text, "close");
for (const text of "…⋯⋮⋱") kCharacters.set(text, "dots");
