// The guided tours: for each step the page, what is in the light (`at`), and what is clicked before (`do`: selector and
// text of the element). `needs` is the kind of model; `text` is written into its first input, else its first example.
const SENTENCE = "The animal didn't cross the street because it was too tired.";
const PROMPT = "The capital of France is";

export const tours = [
  {
    id: "attention", title: "Scaled dot-product attention", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "look", at: "#inputs", title: "A sentence", text: "The model splits the sentence into tokens and turns each into a vector. Attention is the only place where these vectors exchange information." },
      { on: "look", at: "#view", title: "One row per query, one column per key", text: "A cell is the weight with which the token of the row attends to the token of the column. Each row sums to 1: it is the output of a softmax." },
      { on: "steps", at: "#steps > li:nth-child(1)", title: "x, the vector of one token", text: "Everything starts with the vector x of the query token, as the layer before left it." },
      { on: "steps", at: "#steps > li:nth-child(4)", title: "Scores: q · k", text: "The query is compared with the key of every token by a dot product. A large product means: this token has what I look for." },
      { on: "steps", at: "#steps > li:nth-child(4)", title: "Scaled by 1 / √d", text: "For vectors of dimension d with unit variance, the dot product has variance d. Divided by √d it stays 1, whatever the dimension." },
      { on: "lessons", at: "#scaling", title: "Why the scale matters", text: "Without it, softmax saturates as d grows: one weight goes to 1, the entropy and the gradients go to 0." },
      { on: "lessons", at: "#scores", title: "By hand: 112 and 96", text: "Divided by √64 they are 14 and 12; softmax makes them 0.8808 and 0.1192. Change the numbers and watch the weights." },
    ],
  },
  {
    id: "query-key-value", title: "Query, key and value", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "steps", at: "#steps > li:nth-child(2)", title: "The query: what a token looks for", text: "q = W_Q x. The same matrix W_Q is used for every token of the layer; each head has its own rows of it." },
      { on: "steps", at: "#steps > li:nth-child(3)", title: "The keys: what a token offers", text: "k = W_K x for every token. A score compares the query of one token with the key of another, so that it may differ in the two directions." },
      { on: "steps", at: "#steps > li:nth-child(3)", title: "The values: what a token passes on", text: "v = W_V x. What is found by the key is not what is passed on: that is the value." },
      { on: "steps", at: "#steps > li:nth-child(4)", title: "Softmax of the scores", text: "The weights are positive and sum to 1. Edit a score and see every weight of the row change: they share one sum." },
      { on: "steps", at: "#steps > li:nth-child(5)", title: "The weighted sum", text: "Each value times its weight, summed, is the output of this head. With equal weights this is average pooling." },
      { on: "look", at: "#view", title: "All queries at once", text: "In matrix form: softmax(Q Kᵀ / √d) V. All rows are computed in parallel; no token waits for another." },
    ],
  },
  {
    id: "heads", title: "Multi-head attention", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "look", at: "#heads", title: "Several heads in every layer", text: "Each head has projections of its own, and its own pattern. Their outputs are concatenated and multiplied by W_O." },
      { on: "look", at: "#tokens", title: "What does “it” attend to?", text: "The query is the word “it”; the key to look for is “animal”.", do: [["#tokens .token", "it"], ["#tokens .token", "animal"]] },
      { on: "look", at: "#search", title: "Every head, one question", text: "The weight from “it” to “animal” in every head of every layer, and the strongest in a list. Few heads answer this question." },
      { on: "look", at: "#view", title: "The head that resolves the pronoun", text: "The first head of the list, opened. The pin stays on the same two words while heads and layers change.", do: [["#matches .ranked li:first-child button"]] },
      { on: "look", at: "#explanation", title: "Types of heads", text: "Previous token, next token, first token, same word, induction: every head by its pattern, in one colour scale.", do: [["#explain-gallery"]] },
      { on: "look", at: "#explanation", title: "Do we need all of them?", text: "Ablation switches a head off and computes the answer again: what does it lose?", do: [["#explain-ablation"]] },
    ],
  },
  {
    id: "positions", title: "Positional encoding", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "lessons", at: "#order", title: "Attention does not know the order", text: "Shuffle the words: each keeps its output. Add positional encodings, and the output depends on the position." },
      { on: "lessons", at: "#positions", title: "Sinusoidal positional encoding", text: "Position p is a vector of sines and cosines, from high to low frequency: 20 positions, 512 dimensions." },
      { on: "lessons", at: "#append", title: "Concatenate or add?", text: "Appending a one-hot position before a linear layer equals adding a vector after it: W [x; p] = W_I x + W_P p." },
      { on: "flow", at: "#picture", title: "In a real model", text: "The residual stream of a token starts with its embedding plus its position. BERT learns a table of positions; Llama rotates queries and keys instead." },
      { on: "look", at: "#heads", title: "Heads that use the position", text: "A diagonal beside the main one is a head that attends to the previous or the next token, whatever the words are." },
      { on: "look", at: "#explanation", title: "How many of them?", text: "The gallery sorts all heads by pattern: previous and next token are positions, same word and induction are contents.", do: [["#explain-gallery"]] },
    ],
  },
  {
    id: "masked", title: "Masked self-attention", needs: "decoder", text: PROMPT,
    steps: [
      { on: "lessons", at: "#masking", title: "No look ahead", text: "A causal mask lets a position see itself and what comes before it. Replace a word: nothing before it changes, exactly." },
      { on: "look", at: "#inputs", title: "A prompt", text: "A language model predicts the next token at every position, so no position may see the tokens that it has to predict." },
      { on: "look", at: "#view", title: "A triangle", text: "Above the diagonal every weight is exactly 0: the scores there are minus infinity before the softmax." },
      { on: "look", at: "#heads", title: "In every layer and head", text: "All heads are masked alike. A dark first column is an attention sink: weight that a head has no other use for." },
      { on: "steps", at: "#steps > li:nth-child(4)", title: "The mask, number by number", text: "Masked keys are left out of the softmax; the weights of the others still sum to 1." },
      { on: "look", at: "#scores", title: "The next token", text: "The last position has seen the whole prompt: its output gives the probabilities of the next token." },
    ],
  },
  {
    id: "permutation", title: "Permutation equivariance", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "lessons", at: "#order", title: "A set, not a sequence", text: "Five words without positions. Press Shuffle: the rows change places, and no number changes. f(s(x)) = s(f(x))." },
      { on: "lessons", at: "#order", title: "Which dog bit which man?", text: "“the dog bit the man” and “the man bit the dog” have the same outputs. For sets this is wanted, for language it is not." },
      { on: "lessons", at: "#positions", title: "Positions break the symmetry", text: "A different vector is added at each position, and the output depends on the order." },
      { on: "lessons", at: "#masking", title: "So does a mask", text: "With a causal mask each position sees another part of the sequence: a masked layer is not equivariant." },
      { on: "look", at: "#view", title: "In a trained model", text: "Exchange two words of the sentence and predict again: with positions, the map is not the same map with two rows exchanged." },
      { on: "look", at: "#inputs", title: "Try it", text: "`saccade check` tests this identity on any model without positions." },
    ],
  },
  {
    id: "cross", title: "Cross-attention", needs: "translation",
    steps: [
      { on: "look", at: "#inputs", title: "Source and target", text: "The encoder reads the source; the decoder writes the target, one token after another." },
      { on: "look", at: "#output", title: "The translation", text: "Beam search keeps the most probable hypotheses; this is the best of them." },
      { on: "look", at: "#view", title: "Target by source", text: "Queries come from the decoder (rows), keys and values from the encoder (columns): a matrix of shape T × S." },
      { on: "look", at: "#tokens", title: "Word by word", text: "Hover over a word of the translation to see which words of the source it looks at. Nobody taught the model this alignment." },
      { on: "look", at: "#heads", title: "Three kinds of attention", text: "Self-attention of the encoder, masked self-attention of the decoder, and cross-attention between them." },
      { on: "look", at: "#view", title: "Lines", text: "The same weights as lines. They cross where the two languages order their words differently.", do: [["#view-lines"]] },
    ],
  },
  {
    id: "residual", title: "The residual stream", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "flow", at: "#picture", title: "One token through all layers", text: "The width is the norm of the vector. Attention and feed-forward add to a stream that runs from the embedding to the output." },
      { on: "flow", at: ".stage[data-stage=embedding]", title: "Embedding and position", text: "The stream starts with the vector of the token and of its position." },
      { on: "flow", at: ".stage:has(.box.attention)", title: "Attention adds", text: "What the token took from other tokens. The thin ribbons are the tokens that contributed most." },
      { on: "flow", at: ".stage:has(.box.feed)", title: "So does the feed-forward network", text: "It sees this token alone: all that comes from other tokens came through attention." },
      { on: "lessons", at: "#masking", title: "Attention is the only exchange", text: "If each word attends to itself only, replacing one word changes no other: norms and feed-forward act on each position separately." },
      { on: "lessons", at: "#norms", title: "Why deep stacks train", text: "Through the residual connections gradients reach the first layer without passing all the others." },
    ],
  },
  {
    id: "norms", title: "Layer norm, pre-norm and post-norm", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "lessons", at: "#norms", title: "Where the norm stands", text: "Post-norm: norm(x + f(x)), as published in 2017. Pre-norm: x + f(norm(x)). The curves are gradient norms at initialization." },
      { on: "flow", at: "#picture", title: "Post-norm in BERT", text: "The stream itself is normalized after each addition, so its width stays about the same through all layers." },
      { on: "flow", at: ".stage[data-stage=embedding]", title: "Layer norm", text: "Every vector gets mean 0 and standard deviation 1 over its dimensions, then a learned scale and shift. Other tokens and other rows of the batch play no part." },
      { on: "flow", at: ".stage:has(.box.attention)", title: "What is added before the norm", text: "With post-norm the sum is normalized; what attention adds competes with the stream for its share of the norm." },
      { on: "lessons", at: "#norms", title: "Pre-norm is more stable", text: "With pre-norm the stream grows from layer to layer, and gradients shrink accordingly: a deep stack trains without warm-up." },
      { on: "lessons", at: "#masking", title: "A norm acts on one position", text: "Like the feed-forward network, it never mixes tokens." },
    ],
  },
  {
    id: "encoder", title: "The encoder", needs: "encoder", text: SENTENCE,
    steps: [
      { on: "look", at: "#inputs", title: "Text in", text: "Tokens between special tokens; the vector of each is looked up in a table, and its position is added." },
      { on: "look", at: "#heads", title: "A stack of equal blocks", text: "Each block is self-attention and a feed-forward network, both with a residual connection and a norm." },
      { on: "look", at: "#view", title: "Both directions", text: "No mask: every token sees the tokens before and after it. That is what makes an encoder good at reading and unable to write." },
      { on: "flow", at: "#picture", title: "Layer by layer", text: "What each block adds to the stream of one token." },
      { on: "look", at: "#output", title: "Vectors out", text: "One vector per token, or one for the whole text: the input of classifiers, taggers and searches." },
      { on: "look", at: "#explanation", title: "Which heads matter", text: "Statistics of every head of the layer that is open: entropy, distance, where it looks.", do: [["#explain-heads"]] },
    ],
  },
  {
    id: "decoder", title: "The decoder", needs: "decoder", text: PROMPT,
    steps: [
      { on: "look", at: "#inputs", title: "A prompt", text: "A decoder continues a text. Here it reads the prompt alone, and generates when asked to." },
      { on: "look", at: "#view", title: "Masked self-attention", text: "Each position sees itself and what comes before: so all positions can be trained at once, each on its next token." },
      { on: "look", at: "#scores", title: "Linear and softmax", text: "The last vector times the output matrix, through a softmax: a probability for every token of the vocabulary." },
      { on: "look", at: "#explanation", title: "Guesses on the way", text: "The logit lens applies the output layer after every layer: when does the answer appear?", do: [["#explain-lens"]] },
      { on: "generate", at: "#form", title: "Generate", text: "The next token is chosen, appended, and read again; keys and values of the tokens before are kept in a cache." },
      { on: "lessons", at: "#masking", title: "Why the cache is exact", text: "Nothing that comes later changes an earlier position: what was computed once stays right." },
    ],
  },
  {
    id: "kernel", title: "Kernel smoothing and Gaussian processes",
    steps: [
      { on: "lessons", at: "#smoothing", title: "Regression with stored points", text: "24 noisy points of a curve. What is the value at a new x?" },
      { on: "lessons", at: "#smoothing figure", title: "A weighted mean", text: "Each curve predicts with weights of the stored points: near points count more. The dots are the data." },
      { on: "lessons", at: "#smoothing label", title: "The kernel width", text: "Narrow: the curve follows every point. Wide: it is the mean of all. Average pooling is the widest kernel." },
      { on: "lessons", at: "#smoothing", title: "It is attention", text: "x is the query, the stored x_i are keys, the y_i values; with a Gaussian kernel the weights are a softmax of negative squared distances." },
      { on: "lessons", at: "#smoothing", title: "A Gaussian process", text: "Its mean is a weighted sum of the same values, with weights that also know how the stored points resemble each other; they may be negative." },
      { on: "lessons", at: "#scores", title: "Now learn the comparison", text: "Replace x by W_Q x, the stored inputs by W_K X and the outputs by W_V Y: the attention layer of a Transformer." },
    ],
  },
];
